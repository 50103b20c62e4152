// Attention of one query token over its sequence, in one pass (running maximum and sum, as in FlashAttention), for the
// query heads that share a KV head. Works through four blocks (64 tokens) at a time: enough independent sums to keep
// the multipliers busy.
#pragma once

#include <cmath>

#include "kv_formats.h"

namespace pagewire {

constexpr int kGroupBlocks = 4;
constexpr int kGroupTokens = kGroupBlocks * kBlockTokens;
constexpr int kMaxHeads = 4;     // query heads computed together; more are done in several passes
constexpr float kHidden = -1e30f;  // score of a key that is not seen; finite, so that differences are never NaN

// The part of a sequence that a query sees, and where it lies.
struct Span {
    const int32_t* block_table;
    int begin, end;  // positions
};

// Result of attention over a part of a sequence; parts are merged by their maxima.
struct Partial {
    alignas(64) float sum[kMaxHeads][kMaxHeadDim];  // of weights times values
    float weight[kMaxHeads];                        // sum of weights, relative to 2 ** maximum
    float maximum[kMaxHeads];
};

// The tiles of a group of blocks.
struct GroupTiles {
    const char* at[kGroupBlocks];
};

PW_INLINE GroupTiles group_at(const KvCache& cache, int layer, int head, const Span& span, int first_block, int blocks) {
    GroupTiles group;
    for (int i = 0; i < kGroupBlocks; i++)
        // Past the end the last block stands in: its scores are masked.
        group.at[i] = cache.tile(layer, span.block_table[first_block + i < blocks ? first_block + i : blocks - 1], head);
    return group;
}

// Queries of G heads over a cache in bf16: as they come.
template <int G>
struct Bf16Queries {
    const bf16* values;  // [G, dim], scaled by log2(e) / sqrt(dim)
    int dim;

    Bf16Queries(const bf16* query, int dim_) : values(query), dim(dim_) {}

    PW_INLINE void scores(const GroupTiles& tiles, const GroupTiles& next, size_t, f32x16 (&scores)[G][kGroupBlocks]) const {
#pragma GCC unroll 4
        for (int g = 0; g < G; g++)
#pragma GCC unroll 4
            for (int b = 0; b < kGroupBlocks; b++) scores[g][b] = f32x16{};
        for (int d = 0; d < dim; d += 2) {
            i32x16 keys[kGroupBlocks];
#pragma GCC unroll 4
            for (int b = 0; b < kGroupBlocks; b++) {
                keys[b] = load_as<i32x16>(tiles.at[b] + d / 2 * 64);
                prefetch(next.at[b] + d / 2 * 64);
            }
#pragma GCC unroll 4
            for (int g = 0; g < G; g++) {
                i32x16 pair = splat_word(values + g * dim + d);
#pragma GCC unroll 4
                for (int b = 0; b < kGroupBlocks; b++) scores[g][b] = dot_bf16(scores[g][b], pair, keys[b]);
            }
        }
    }
    PW_INLINE Bf16Kv::Weights weights(const GroupTiles&, size_t, float*) const { return {}; }
};

// Queries of G heads over a cache in int8: in two parts of 8 bits, query = scale * (256 * high + low).
template <int G>
struct Int8Queries {
    alignas(64) int8_t high[G][kMaxHeadDim], low[G][kMaxHeadDim];
    float scale[G];
    int32_t offset[G];  // -128 times the sum of 256 * high + low
    int dim;

    Int8Queries(const bf16* query, int dim_) : dim(dim_) {
        for (int g = 0; g < G; g++) split(query + g * dim, g);
    }
    PW_INLINE void split(const bf16* query, int g) {
        f32x16 largest{};
        for (int d = 0; d < dim; d += kLanes) largest = maximum(largest, maximum(load_bf16(query + d), -load_bf16(query + d)));
        constexpr float kMost = 127 * 256;
        const float most = reduce_max(largest);
        const f32x16 inverse = splat(most > 0 ? kMost / most : 0.0f), shifter = splat(12582912.0f);
        i32x16 sum{};
        for (int d = 0; d < dim; d += kLanes) {
            const i32x16 whole = (i32x16)(load_bf16(query + d) * inverse + shifter) - (i32x16)shifter;
            const i32x16 upper = (whole + 128) >> 8;
            store_int8(high[g] + d, upper);
            store_int8(low[g] + d, whole - (upper << 8));
            sum += whole;
        }
        scale[g] = most / kMost;
        offset[g] = -128 * reduce_add(sum);
    }

    PW_INLINE void scores(const GroupTiles& tiles, const GroupTiles& next, size_t part_bytes,
                          f32x16 (&scores)[G][kGroupBlocks]) const {
#pragma GCC unroll 2
        for (int b = 0; b < kGroupBlocks; b += 2) {
            i32x16 upper[G][2] = {}, lower[G][2] = {};
            for (int d = 0; d < dim; d += 4) {
                const i32x16 keys0 = load_as<i32x16>(tiles.at[b] + d / 4 * 64), keys1 = load_as<i32x16>(tiles.at[b + 1] + d / 4 * 64);
                prefetch(next.at[b] + d / 4 * 64);
                prefetch(next.at[b + 1] + d / 4 * 64);
#pragma GCC unroll 4
                for (int g = 0; g < G; g++) {
                    const i32x16 high4 = splat_word(high[g] + d), low4 = splat_word(low[g] + d);
                    upper[g][0] = dot_int8(upper[g][0], keys0, high4);
                    upper[g][1] = dot_int8(upper[g][1], keys1, high4);
                    lower[g][0] = dot_int8(lower[g][0], keys0, low4);
                    lower[g][1] = dot_int8(lower[g][1], keys1, low4);
                }
            }
#pragma GCC unroll 2
            for (int i = 0; i < 2; i++) {
                const f32x16 key_scales = load((const float*)(tiles.at[b + i] + 2 * part_bytes));
#pragma GCC unroll 4
                for (int g = 0; g < G; g++)
                    scores[g][b + i] = __builtin_convertvector((upper[g][i] << 8) + lower[g][i] + offset[g], f32x16) *
                                       (key_scales * splat(scale[g]));
            }
        }
#pragma GCC unroll 4
        for (int b = 0; b < kGroupBlocks; b++) {
            prefetch(next.at[b] + 2 * part_bytes);
            prefetch(next.at[b] + 2 * part_bytes + 64);
        }
    }
    PW_INLINE Int8Kv::Weights weights(const GroupTiles& tiles, size_t part_bytes, float* factors) const {
        const float* scales[kGroupBlocks];
        for (int b = 0; b < kGroupBlocks; b++) scales[b] = (const float*)(tiles.at[b] + 2 * part_bytes) + kBlockTokens;
        return Int8Kv::weights_for(scales, kGroupBlocks, factors);
    }
};

// sum[g] += weights[g] times V, for V vectors (16 dimensions each) from dimension `d`.
template <class Kv, int G, int V>
PW_INLINE void group_values(const typename Kv::Weight (*weights)[kGroupTokens], const typename Kv::Weights& worth,
                            size_t part_bytes, int dim, int d, const GroupTiles& tiles, const GroupTiles& next,
                            Partial& part) {
    typename Kv::Sum acc[G][V];
#pragma GCC unroll 4
    for (int g = 0; g < G; g++)
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) acc[g][v] = Kv::start(&part.sum[g][d + v * 16]);
    for (int b = 0; b < kGroupBlocks; b++) {
        const size_t at = part_bytes + (size_t)d * Kv::kPairBytes;
        const char *values = tiles.at[b] + at, *upcoming = next.at[b] + at;
#pragma GCC unroll 2
        for (int t = 0; t < kBlockTokens; t += 2) {
            i32x16 pair[G];
#pragma GCC unroll 4
            for (int g = 0; g < G; g++) pair[g] = splat_word(&weights[g][b * kBlockTokens + t]);
#pragma GCC unroll 4
            for (int v = 0; v < V; v++) {
                const size_t offset = (size_t)(t / 2 * dim + v * 16) * Kv::kPairBytes;
                const i32x16 value = Kv::load_values(values + offset);
                if (v * 16 * Kv::kPairBytes % 64 == 0) prefetch(upcoming + offset);
#pragma GCC unroll 4
                for (int g = 0; g < G; g++) acc[g][v] = Kv::dot(acc[g][v], pair[g], value);
            }
        }
    }
#pragma GCC unroll 4
    for (int g = 0; g < G; g++)
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) Kv::finish(&part.sum[g][d + v * 16], acc[g][v], worth);
}

// Turns scores (in units of log2) of one head into weights; rescales what was summed when the maximum rises.
template <class Kv>
PW_INLINE void group_softmax(f32x16 (&scores)[kGroupBlocks], int first, const Span& span, int dim, int g,
                             const typename Kv::Weights& worth, Partial& part, typename Kv::Weight* weights) {
    if (first < span.begin || first + kGroupTokens > span.end) {
        const i32x16 lane{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
        for (int b = 0; b < kGroupBlocks; b++) {
            const i32x16 position = lane + (first + b * kBlockTokens);
            scores[b] = (position >= span.begin) & (position < span.end) ? scores[b] : splat(kHidden);
        }
    }
    const float largest = reduce_max(maximum(maximum(scores[0], scores[1]), maximum(scores[2], scores[3])));
    if (largest > part.maximum[g]) {
        if (part.weight[g] > 0) {
            const float shrink = std::exp2(part.maximum[g] - largest);
            part.weight[g] *= shrink;
            for (int d = 0; d < dim; d += 16) store(&part.sum[g][d], load(&part.sum[g][d]) * splat(shrink));
        }
        part.maximum[g] = largest;
    }
    f32x16 total{};
#pragma GCC unroll 4
    for (int b = 0; b < kGroupBlocks; b++) {
        const f32x16 weight = exp2_coarse(scores[b] - splat(part.maximum[g]));
        total += weight;
        worth.put(weights + b * kBlockTokens, b * kBlockTokens, weight);
    }
    part.weight[g] += reduce_add(total);
}

// Attention of G heads (queries bf16 [G, dim], scaled by log2(e) / sqrt(dim)) over `span`.
template <class Kv, int G, template <int> class Queries>
void decode_attention(const KvCache& cache, int layer, int head, const bf16* query, const Span& span, Partial& part) {
    const int dim = cache.dim, blocks = (span.end + kBlockTokens - 1) / kBlockTokens;
    const size_t part_bytes = cache.part_bytes();
    for (int g = 0; g < G; g++) {
        part.weight[g] = 0, part.maximum[g] = -INFINITY;
        for (int d = 0; d < dim; d += 16) store(&part.sum[g][d], f32x16{});
    }
    const Queries<G> queries(query, dim);
    alignas(64) typename Kv::Weight weights[G][kGroupTokens];
    alignas(64) float factors[kGroupTokens];
    int block = span.begin / kBlockTokens;
    GroupTiles tiles = group_at(cache, layer, head, span, block, blocks);
    for (; block < blocks; block += kGroupBlocks) {
        const GroupTiles next = group_at(cache, layer, head, span, block + kGroupBlocks, blocks);
        f32x16 scores[G][kGroupBlocks];
        queries.scores(tiles, next, part_bytes, scores);
        const auto worth = queries.weights(tiles, part_bytes, factors);
#pragma GCC unroll 4
        for (int g = 0; g < G; g++) group_softmax<Kv>(scores[g], block * kBlockTokens, span, dim, g, worth, part, weights[g]);
        auto add = [&]<int V>(int d) { group_values<Kv, G, V>(weights, worth, part_bytes, dim, d, tiles, next, part); };
        for (int d = 0; d < dim; d += 64) {
            if (dim - d >= 64) add.template operator()<4>(d);
            else if (dim - d == 48) add.template operator()<3>(d);
            else if (dim - d == 32) add.template operator()<2>(d);
            else add.template operator()<1>(d);
        }
        tiles = next;
    }
}

inline void decode_attention(const KvCache& cache, int layer, int head, int heads, const bf16* query, const Span& span,
                             Partial& part) {
    auto run = [&]<int G>() {
        if (cache.format == KvFormat::kInt8) decode_attention<Int8Kv, G, Int8Queries>(cache, layer, head, query, span, part);
        else decode_attention<Bf16Kv, G, Bf16Queries>(cache, layer, head, query, span, part);
    };
    switch (heads) {
        case 1: return run.template operator()<1>();
        case 2: return run.template operator()<2>();
        case 3: return run.template operator()<3>();
        default: return run.template operator()<4>();
    }
}

}  // namespace pagewire
