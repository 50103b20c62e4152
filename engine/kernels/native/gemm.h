// bf16 matrix products with float32 accumulation: out[m, n] = sum over k of a[m, k] * w[n, k].
//
// Weights are packed once, at load, into panels of 32 output columns that are read from front to back:
//
//      panel p (columns 32p .. 32p+31)
//      k=0,1 | w[32p,0] w[32p,1] | w[32p+1,0] w[32p+1,1] | ... | w[32p+31,0] w[32p+31,1] |   128 bytes
//      k=2,3 | w[32p,2] w[32p,3] | ...
//
// so that one `dot_bf16` takes a pair of k for 16 columns, with the activation pair a[m, k:k+2] in every lane.
// Activations stay row-major. A register tile is up to kTileRows rows by one panel.
#pragma once

#include <cstddef>

#include "prefetch.h"

namespace pagewire {

constexpr int kPanel = 32;

// What to bring closer while a tile is computed: the next panel, a share per tile, or the panel's own lines ahead; and
// whatever is wanted later.
struct Ahead {
    const char* from;
    ptrdiff_t step;  // bytes per pair of k
    ReadAhead* later;
};

// How a tile reads: its panel straight from memory, this once; a panel that is near; or that, and fetching what is wanted
// later. A kernel each, because even fetching nothing costs the last one a tenth of its speed.
enum class Reading { kStream, kNear, kNearFetchLater };

// Reads a panel from front to back, two values of k at a time: columns 0-15 into w0, 16-31 into w1.
class Bf16Reader {
  public:
    explicit Bf16Reader(const bf16* panel) : at_(panel) {}
    static int group(int k) { return k % 64 ? k : 64; }
    void start_group() {}
    PW_INLINE void next(i32x16& w0, i32x16& w1) {
        w0 = load_as<i32x16>(at_), w1 = load_as<i32x16>(at_ + 32);
        at_ += 64;
    }

  private:
    const bf16* at_;
};

// One register tile: out[r, 0:32] for `Rows` rows.
template <int Rows, Reading How, class Reader>
__attribute__((noinline)) void bf16_tile(const bf16* a, Reader reader, int k, Ahead ahead, float* out) {
    f32x16 acc[Rows][2];
#pragma GCC unroll 16
    for (int r = 0; r < Rows; r++) acc[r][0] = acc[r][1] = f32x16{};
    const char* fetch = ahead.from;
    const size_t stride = k;
    for (int begin = 0; begin < k; begin += Reader::group(k)) {
        reader.start_group();
        ReadAhead::Stretch later{};
        if (How == Reading::kNearFetchLater) later = ahead.later->take(Reader::group(k) / 2);
        for (int i = begin; i < begin + Reader::group(k); i += 2) {
            i32x16 w0, w1;
            reader.next(w0, w1);
            prefetch(fetch);
            if (How == Reading::kStream) prefetch(fetch + 64);
            fetch += ahead.step;
            if (How == Reading::kNearFetchLater) prefetch_l2(later.from), later.from += later.step;
#pragma GCC unroll 16
            for (int r = 0; r < Rows; r++) {
                i32x16 pair = splat_word(a + r * stride + i);
                acc[r][0] = dot_bf16(acc[r][0], pair, w0);
                acc[r][1] = dot_bf16(acc[r][1], pair, w1);
            }
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < Rows; r++) {
        store(out + r * kPanel, acc[r][0]);
        store(out + r * kPanel + kLanes, acc[r][1]);
    }
}

template <Reading How, int Rows = kTileRows, class Reader>
PW_INLINE void bf16_rows(int rows, const bf16* a, Reader reader, int k, Ahead ahead, float* out) {
    if constexpr (Rows > 0) {
        if (rows == Rows) bf16_tile<Rows, How, Reader>(a, reader, k, ahead, out);
        else bf16_rows<How, Rows - 1>(rows, a, reader, k, ahead, out);
    }
}

}  // namespace pagewire
