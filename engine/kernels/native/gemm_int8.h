// int8 matrix products. Weights are stored unsigned (value + 128), activations signed, in groups of 64 input channels
// with a scale each, so that an outlier channel costs precision only in its own group:
//
//      out[m, n] = wscale[n] * sum over groups g of ascale[m, g] * (sum over k in g of a[m, k] * (w[n, k] - 128))
//
// The inner sum of a[m, k] * -128 is known when the row is quantized; integer accumulation starts from it.
//
//      panel p (columns 32p .. 32p+31), dynamic mode: 4 k side by side, 128 bytes
//      k=0..3 | w[32p,0..3] | w[32p+1,0..3] | ... | w[32p+31,0..3] |
//
// In weight-only mode weights are signed, two values of k side by side as in the bf16 panels into which they are widened
// before use, with a scale for each column and group of 64 input channels; activations stay bf16.
#pragma once

#include <cmath>
#include <vector>

#include "gemm.h"

namespace pagewire {

constexpr int kGroup = 64;

// Rows of activations, quantized. Group-major: the rows of a tile lie at fixed distances from each other.
struct QuantizedRows {
    int8_t* values = nullptr;    // [k / kGroup, rows, kGroup]
    float* scales = nullptr;     // [k / kGroup, rows]
    int32_t* offsets = nullptr;  // [k / kGroup, rows]: -128 times the sum of the group's values
    size_t rows = 0;             // that there is room for

    // The same rows from group `group` and row `row` on.
    QuantizedRows from(int group, int row) const {
        const size_t at = group * rows + row;
        return {values + at * kGroup, scales + at, offsets + at, rows};
    }
};

// Quantizes one group of 64 values.
PW_INLINE void quantize_group(const f32x16 (&v)[4], const QuantizedRows& to) {
    f32x16 largest = maximum(maximum(maximum(v[0], -v[0]), maximum(v[1], -v[1])),
                             maximum(maximum(v[2], -v[2]), maximum(v[3], -v[3])));
    const float most = reduce_max(largest);
    const f32x16 inverse = splat(most > 0 ? 127.0f / most : 0.0f), shifter = splat(12582912.0f);
    i32x16 sum{};
    for (int i = 0; i < 4; i++) {
        i32x16 rounded = (i32x16)(v[i] * inverse + shifter) - (i32x16)shifter;
        sum += rounded;
        store_int8(to.values + i * 16, rounded);
    }
    *to.scales = most / 127.0f;
    *to.offsets = -128 * reduce_add(sum);
}

PW_INLINE void quantize_group(const float* values, const QuantizedRows& to) {
    const f32x16 v[4] = {load(values), load(values + 16), load(values + 32), load(values + 48)};
    quantize_group(v, to);
}

// Quantizes `count` weights of one column; returns their scale. put(i, value) receives the integers.
template <class Put>
float quantize_weights(const float* values, int count, Put&& put) {
    float most = 0;
    for (int i = 0; i < count; i++) most = std::fmax(most, std::fabs(values[i]));
    const float inverse = most > 0 ? 127.0f / most : 0.0f;
    for (int i = 0; i < count; i++) put(i, (int)std::nearbyint(values[i] * inverse));
    return most / 127.0f;
}

// Packs one column for the dynamic mode into its lane of a panel; returns its scale.
inline float pack_dynamic(const float* values, int k, uint8_t* panel, int lane) {
    return quantize_weights(values, k, [=](int i, int value) {
        panel[((size_t)i / 4 * kPanel + lane) * 4 + i % 4] = (uint8_t)(value + 128);
    });
}

// Packs one column for the weight-only mode; scales is [k / kGroup, 32], of the panel.
inline void pack_weight_only(const float* values, int k, int8_t* panel, int lane, float* scales) {
    for (int g = 0; g < k / kGroup; g++) {
        int8_t* to = panel + (size_t)g * kGroup * kPanel;
        scales[g * kPanel + lane] = quantize_weights(values + g * kGroup, kGroup, [=](int i, int value) {
            to[(i / 2 * kPanel + lane) * 2 + i % 2] = (int8_t)value;
        });
    }
}

// One register tile, see bf16_tile.
template <int Rows, Reading How>
__attribute__((noinline)) void int8_tile(QuantizedRows a, const uint8_t* w, int k, Ahead ahead, float* out) {
    f32x16 sum[Rows][2];
#pragma GCC unroll 16
    for (int r = 0; r < Rows; r++) sum[r][0] = sum[r][1] = f32x16{};
    const char* fetch = ahead.from;
    for (int g = 0; g < k / kGroup; g++) {
        const QuantizedRows group = a.from(g, 0);
        ReadAhead::Stretch later{};
        if (How == Reading::kNearFetchLater) later = ahead.later->take(kGroup / 4);
        i32x16 acc[Rows][2];
#pragma GCC unroll 16
        for (int r = 0; r < Rows; r++) acc[r][0] = acc[r][1] = splat_word(group.offsets + r);
        for (int i = 0; i < kGroup; i += 4) {
            i32x16 w0 = load_as<i32x16>(w), w1 = load_as<i32x16>(w + 64);
            prefetch(fetch);
            if (How == Reading::kStream) prefetch(fetch + 64);
            fetch += ahead.step;
            if (How == Reading::kNearFetchLater) prefetch_l2(later.from), later.from += later.step;
            w += 128;
#pragma GCC unroll 16
            for (int r = 0; r < Rows; r++) {
                i32x16 four = splat_word(group.values + r * kGroup + i);
                acc[r][0] = dot_int8(acc[r][0], w0, four);
                acc[r][1] = dot_int8(acc[r][1], w1, four);
            }
        }
#pragma GCC unroll 16
        for (int r = 0; r < Rows; r++) {
            f32x16 scale = splat(group.scales[r]);
            sum[r][0] += __builtin_convertvector(acc[r][0], f32x16) * scale;
            sum[r][1] += __builtin_convertvector(acc[r][1], f32x16) * scale;
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < Rows; r++) {
        store(out + r * kPanel, sum[r][0]);
        store(out + r * kPanel + kLanes, sum[r][1]);
    }
}

template <Reading How, int Rows = kTileRowsInt8>
PW_INLINE void int8_rows(int rows, QuantizedRows a, const uint8_t* w, int k, Ahead ahead, float* out) {
    if constexpr (Rows > 0) {
        if (rows == Rows) int8_tile<Rows, How>(a, w, k, ahead, out);
        else int8_rows<How, Rows - 1>(rows, a, w, k, ahead, out);
    }
}

// Reads a weight-only panel as if it were one of bf16, see Bf16Reader.
class WideningReader {
  public:
    WideningReader(const int8_t* panel, const float* scales) : at_(panel), scales_(scales) {}
    static constexpr int group(int) { return kGroup; }
    PW_INLINE void start_group() {
        // Two values of k lie side by side: each column's scale is wanted twice.
        const i32x16 low{0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7}, high = low + 8;
        for (int half = 0; half < 2; half++) {
            const f32x16 columns = load(scales_ + half * kLanes);
            scale_[2 * half] = __builtin_shuffle(columns, low);
            scale_[2 * half + 1] = __builtin_shuffle(columns, high);
        }
        scales_ += kPanel;
    }
    PW_INLINE void next(i32x16& w0, i32x16& w1) {
        w0 = to_bf16_pairs(load_int8(at_) * scale_[0], load_int8(at_ + 16) * scale_[1]);
        w1 = to_bf16_pairs(load_int8(at_ + 32) * scale_[2], load_int8(at_ + 48) * scale_[3]);
        at_ += 64;
    }

  private:
    const int8_t* at_;
    const float* scales_;
    f32x16 scale_[4];
};

// Widens a weight-only panel into this thread's scratch, for many rows.
inline const bf16* widen_panel(WideningReader reader, int k) {
    constexpr size_t kPrefetched = 8192;  // elements past the end that may be prefetched
    thread_local std::vector<bf16> scratch;
    const size_t count = (size_t)k * kPanel;
    if (scratch.size() < count + kPrefetched) scratch.resize(count + kPrefetched);
    bf16* to = scratch.data();
    for (int g = 0; g < k / kGroup; g++) {
        reader.start_group();
        for (int i = 0; i < kGroup; i += 2, to += 64) {
            i32x16 w0, w1;
            reader.next(w0, w1);
            memcpy(to, &w0, sizeof w0);
            memcpy(to + 32, &w1, sizeof w1);
        }
    }
    return scratch.data();
}

}  // namespace pagewire
