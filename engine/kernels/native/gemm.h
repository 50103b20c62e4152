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

#include "simd.h"

namespace pagewire {

constexpr int kPanel = 32;

// What to bring closer while a tile is computed: the next panel, a share per tile, or the panel's own lines ahead.
struct Ahead {
    const char* from;
    ptrdiff_t step;  // bytes per pair of k
};

// One register tile: out[r, 0:32] for `Rows` rows. `Stream`: the panel is read this once, straight from memory.
// A panel of int8_t has the same layout in bytes and is widened on the way.
template <int Rows, bool Stream, class Weight>
__attribute__((noinline)) void bf16_tile(const bf16* a, const Weight* w, int k, Ahead ahead, float* out) {
    f32x16 acc[Rows][2];
#pragma GCC unroll 16
    for (int r = 0; r < Rows; r++) acc[r][0] = acc[r][1] = f32x16{};
    const char* fetch = ahead.from;
    const size_t stride = k;
    for (int i = 0; i < k; i += 2) {
        const i32x16 w0 = load_pairs(w), w1 = load_pairs(w + 32);
        prefetch(fetch);
        if (Stream && sizeof(Weight) == 2) prefetch(fetch + 64);  // 64 weights are two lines, or one of int8
        fetch += ahead.step;
        w += 64;
#pragma GCC unroll 16
        for (int r = 0; r < Rows; r++) {
            i32x16 pair = splat_word(a + r * stride + i);
            acc[r][0] = dot_bf16(acc[r][0], pair, w0);
            acc[r][1] = dot_bf16(acc[r][1], pair, w1);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < Rows; r++) {
        store(out + r * kPanel, acc[r][0]);
        store(out + r * kPanel + kLanes, acc[r][1]);
    }
}

template <bool Stream, int Rows = kTileRows, class Weight>
PW_INLINE void bf16_rows(int rows, const bf16* a, const Weight* w, int k, Ahead ahead, float* out) {
    if constexpr (Rows > 0) {
        if (rows == Rows) bf16_tile<Rows, Stream, Weight>(a, w, k, ahead, out);
        else bf16_rows<Stream, Rows - 1>(rows, a, w, k, ahead, out);
    }
}

}  // namespace pagewire
