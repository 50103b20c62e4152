// What happens to one row between the products: norm, quantization, rotation.
#pragma once

#include <cmath>

#include "linear.h"

namespace pagewire {

// Writes float32 row `values` [k] (k a multiple of 16; of kGroup for int8) as row `row` of `to`.
inline void write_activations(const float* values, int k, Format format, const Activations& to, int row) {
    if (format != Format::kInt8) {
        bf16* out = to.values + (size_t)row * k;
        for (int i = 0; i < k; i += kLanes) store_bf16(out + i, load(values + i));
        return;
    }
    for (int g = 0; g * kGroup < k; g++) {
        quantize_group(values + g * kGroup, to.quantized.from(g, row));
    }
}

// Quantizes row `row` of `a.values` into `a.quantized`.
inline void quantize_row(const Activations& a, int k, int row) {
    const bf16* values = a.values + (size_t)row * k;
    for (int g = 0; g * kGroup < k; g++) {
        f32x16 v[4];
        for (int i = 0; i < 4; i++) v[i] = load_bf16(values + g * kGroup + i * 16);
        quantize_group(v, a.quantized.from(g, row));
    }
}

// out[i] = x[i] / rms(x) * weight[i]; n a multiple of 16. `out` may be `x`.
PW_INLINE void rms_norm(const float* x, const float* weight, float eps, int n, float* out) {
    f32x16 squares[2] = {};
    int i = 0;
    for (; i + 32 <= n; i += 32) {
        f32x16 first = load(x + i), second = load(x + i + 16);
        squares[0] += first * first;
        squares[1] += second * second;
    }
    if (i < n) squares[0] += load(x + i) * load(x + i);
    const f32x16 scale = splat(1.0f / std::sqrt(reduce_add(squares[0] + squares[1]) / (float)n + eps));
    for (i = 0; i < n; i += kLanes) store(out + i, load(x + i) * scale * load(weight + i));
}

// Rotates one head in place: dimension i is paired with dimension i + dim / 2.
PW_INLINE void rotate(float* __restrict head, const float* __restrict cos, const float* __restrict sin, int dim) {
    const int half = dim / 2;
    for (int i = 0; i < half; i++) {
        const float first = head[i], second = head[i + half];
        head[i] = first * cos[i] - second * sin[i];
        head[i + half] = second * cos[i] + first * sin[i];
    }
}

}  // namespace pagewire
