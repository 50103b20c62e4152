// What attention does differently for each number format of the KV cache; the kernels are templates over these.
//
// bf16: products of bf16 pairs, float32 sums.
//
// int8: a query is rounded to int8 too, in one part or two (see QueryPart); K is unsigned, so that one instruction takes
// four dimensions, and integer sums start at -128 times the query's sum. V is widened to int16 and weighted by int16
// weights, relative to the largest scale of V among the tokens worked on: 15 bits, more than bf16 keeps. At most 512
// tokens may be summed before a sum leaves int32 (512 * 32767 * 127 < 2 ** 31).
#pragma once

#include "kv_cache.h"

namespace pagewire {

struct Bf16Kv {
    static constexpr int kDims = 2;        // that a vector of K holds
    static constexpr int kPairBytes = 4;   // of one dimension of V for two tokens
    using Weight = bf16;
    using Sum = f32x16;

    // How weights are stored, and what their sums are worth.
    struct Weights {
        PW_INLINE void put(bf16* to, int, f32x16 weight) const { store_bf16(to, weight); }
    };

    PW_INLINE static i32x16 load_values(const char* from) { return load_as<i32x16>(from); }
    PW_INLINE static f32x16 dot(f32x16 acc, i32x16 weights, i32x16 values) { return dot_bf16(acc, weights, values); }
    PW_INLINE static f32x16 start(const float* sum) { return load(sum); }
    PW_INLINE static void finish(float* sum, f32x16 acc, const Weights&) { store(sum, acc); }
};

struct Int8Kv {
    static constexpr int kDims = 4;
    static constexpr int kPairBytes = 2;
    using Weight = int16_t;
    using Sum = i32x16;
    static constexpr float kOne = 32767.0f;  // a weight of 1

    struct Weights {
        const float* factors;  // [tokens]: kOne times the token's scale, relative to the largest
        float unit;            // what 1 in a sum is worth

        PW_INLINE void put(int16_t* to, int token, f32x16 weight) const { store_int16(to, weight * load(factors + token)); }
    };

    // Weights for tokens whose scales are given, `blocks` pointers to 16 each; factors has room for them.
    PW_INLINE static Weights weights_for(const float* const* scales, int blocks, float* factors) {
        f32x16 largest = load(scales[0]);
        for (int b = 1; b < blocks; b++) largest = maximum(largest, load(scales[b]));
        const float most = reduce_max(largest);
        const f32x16 share = splat(most > 0 ? kOne / most : 0.0f);
        for (int b = 0; b < blocks; b++) store(factors + b * kBlockTokens, load(scales[b]) * share);
        return {factors, most / kOne};
    }

    PW_INLINE static i32x16 load_values(const char* from) { return widen_int8(from); }
    PW_INLINE static i32x16 dot(i32x16 acc, i32x16 weights, i32x16 values) { return dot_int16(acc, weights, values); }
    PW_INLINE static i32x16 start(const float*) { return i32x16{}; }
    PW_INLINE static void finish(float* sum, i32x16 acc, const Weights& weights) {
        store(sum, load(sum) + __builtin_convertvector(acc, f32x16) * splat(weights.unit));
    }
};

}  // namespace pagewire
