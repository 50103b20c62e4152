// int8 matrix products. Weights are stored unsigned (value + 128), activations signed, in groups of 64 input channels
// with a scale each, so that an outlier channel costs precision only in its own group:
//
//      out[m, n] = wscale[n] * sum over groups g of ascale[m, g] * (sum over k in g of a[m, k] * (w[n, k] - 128))
//
// The inner sum of a[m, k] * -128 is known when the row is quantized; integer accumulation starts from it.
//
//      panel p (columns 32p .. 32p+31), dynamic mode: 4 k side by side, 128 bytes
//      k=0..3 | w[32p,0..3] | w[32p+1,0..3] | ... | w[32p+31,0..3] |
//      weight-only mode: 2 k side by side, as the bf16 panels into which they are widened before use, 64 bytes
#pragma once

#include <cmath>
#include <vector>

#include "gemm.h"

namespace pagewire {

constexpr int kGroup = 64;

// Rows of activations, quantized.
struct QuantizedRows {
    int8_t* values = nullptr;    // [rows, k]
    float* scales = nullptr;     // [rows, k / kGroup]
    int32_t* offsets = nullptr;  // [rows, k / kGroup]: -128 times the sum of the group's values

    QuantizedRows from(int row, int k) const {
        const size_t groups = (size_t)k / kGroup;
        return {values + (size_t)row * k, scales + row * groups, offsets + row * groups};
    }
};

// Quantizes one group of 64 values.
PW_INLINE void quantize_group(const f32x16 (&v)[4], int8_t* values, float* scale, int32_t* offset) {
    f32x16 largest = maximum(maximum(maximum(v[0], -v[0]), maximum(v[1], -v[1])),
                             maximum(maximum(v[2], -v[2]), maximum(v[3], -v[3])));
    const float most = reduce_max(largest);
    const f32x16 inverse = splat(most > 0 ? 127.0f / most : 0.0f), shifter = splat(12582912.0f);
    i32x16 sum{};
    for (int i = 0; i < 4; i++) {
        i32x16 rounded = (i32x16)(v[i] * inverse + shifter) - (i32x16)shifter;
        sum += rounded;
        auto narrow = __builtin_convertvector(rounded, int8x16);
        memcpy(values + i * 16, &narrow, 16);
    }
    *scale = most / 127.0f;
    *offset = -128 * reduce_add(sum);
}

// Quantizes one column of weights into its lane of a panel; returns the scale. `side` values of k lie side by side.
inline float pack_int8_column(const float* values, int k, uint8_t* panel, int lane, int side) {
    float most = 0;
    for (int i = 0; i < k; i++) most = std::fmax(most, std::fabs(values[i]));
    const float inverse = most > 0 ? 127.0f / most : 0.0f;
    for (int i = 0; i < k; i++) {
        const int value = (int)std::nearbyint(values[i] * inverse);
        panel[((size_t)i / side * kPanel + lane) * side + i % side] = (uint8_t)(value + 128);
    }
    return most / 127.0f;
}

// One register tile, see bf16_tile.
template <int Rows, bool Stream>
__attribute__((noinline)) void int8_tile(QuantizedRows a, const uint8_t* w, int k, Ahead ahead, float* out) {
    f32x16 sum[Rows][2];
#pragma GCC unroll 16
    for (int r = 0; r < Rows; r++) sum[r][0] = sum[r][1] = f32x16{};
    const size_t stride = k, groups = k / kGroup;
    const char* fetch = ahead.from;
    for (size_t g = 0; g < groups; g++) {
        i32x16 acc[Rows][2];
#pragma GCC unroll 16
        for (int r = 0; r < Rows; r++) acc[r][0] = acc[r][1] = splat_word(a.offsets + r * groups + g);
        const int8_t* values = a.values + g * kGroup;
        for (int i = 0; i < kGroup; i += 4) {
            i32x16 w0 = load_as<i32x16>(w), w1 = load_as<i32x16>(w + 64);
            prefetch(fetch);
            if (Stream) prefetch(fetch + 64);
            fetch += ahead.step;
            w += 128;
#pragma GCC unroll 16
            for (int r = 0; r < Rows; r++) {
                i32x16 four = splat_word(values + r * stride + i);
                acc[r][0] = dot_int8(acc[r][0], w0, four);
                acc[r][1] = dot_int8(acc[r][1], w1, four);
            }
        }
#pragma GCC unroll 16
        for (int r = 0; r < Rows; r++) {
            f32x16 scale = splat(a.scales[r * groups + g]);
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

template <bool Stream, int Rows = kTileRowsInt8>
PW_INLINE void int8_rows(int rows, QuantizedRows a, const uint8_t* w, int k, Ahead ahead, float* out) {
    if constexpr (Rows > 0) {
        if (rows == Rows) int8_tile<Rows, Stream>(a, w, k, ahead, out);
        else int8_rows<Stream, Rows - 1>(rows, a, w, k, ahead, out);
    }
}

// Widens a weight-only panel to bf16 (exact: the integers fit) in this thread's scratch.
inline const char* unpack_weight_only(const uint8_t* panel, int k) {
    thread_local std::vector<bf16> scratch;
    const size_t count = (size_t)k * kPanel;
    if (scratch.size() < count + 4096) scratch.resize(count + 4096);
    for (size_t i = 0; i < count; i += 32) {
        f32x16 low = widen_uint8(panel + i) - splat(128.0f), high = widen_uint8(panel + i + 16) - splat(128.0f);
        store_bf16(&scratch[i], low);
        store_bf16(&scratch[i + 16], high);
    }
    return (const char*)scratch.data();
}

}  // namespace pagewire
