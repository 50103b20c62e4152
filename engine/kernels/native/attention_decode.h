// Attention of one query token over its sequence, in one pass (running maximum and sum, as in FlashAttention), for the
// query heads that share a KV head. Works through four blocks (64 tokens) at a time: enough independent sums to keep
// the multipliers busy.
#pragma once

#include <cmath>

#include "kv_cache.h"

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

struct GroupPointers {
    const bf16* keys[kGroupBlocks];
    const bf16* values[kGroupBlocks];
};

PW_INLINE GroupPointers group_at(const KvCache& cache, int layer, int head, const Span& span, int first_block, int blocks) {
    GroupPointers group;
    for (int i = 0; i < kGroupBlocks; i++) {
        // Past the end the last block stands in: its scores are masked.
        const int32_t block = span.block_table[first_block + i < blocks ? first_block + i : blocks - 1];
        group.keys[i] = cache.keys(layer, block, head);
        group.values[i] = cache.values(layer, block, head);
    }
    return group;
}

template <int G>
PW_INLINE void group_scores(const bf16* query, int dim, const GroupPointers& at, const GroupPointers& next,
                            f32x16 (&scores)[G][kGroupBlocks]) {
#pragma GCC unroll 4
    for (int g = 0; g < G; g++)
#pragma GCC unroll 4
        for (int b = 0; b < kGroupBlocks; b++) scores[g][b] = f32x16{};
    for (int d = 0; d < dim; d += 2) {
        i32x16 keys[kGroupBlocks];
#pragma GCC unroll 4
        for (int b = 0; b < kGroupBlocks; b++) {
            keys[b] = load_as<i32x16>(at.keys[b] + d * kBlockTokens);
            prefetch(next.keys[b] + d * kBlockTokens);
        }
#pragma GCC unroll 4
        for (int g = 0; g < G; g++) {
            i32x16 pair = splat_word(query + g * dim + d);
#pragma GCC unroll 4
            for (int b = 0; b < kGroupBlocks; b++) scores[g][b] = dot_bf16(scores[g][b], pair, keys[b]);
        }
    }
}

// sum[g] += weights[g] times V, for V vectors (16 dimensions each) from dimension `d`.
template <int G, int V>
PW_INLINE void group_values(const bf16 (*weights)[kGroupTokens], int dim, int d, const GroupPointers& at,
                            const GroupPointers& next, Partial& part) {
    f32x16 acc[G][V];
#pragma GCC unroll 4
    for (int g = 0; g < G; g++)
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) acc[g][v] = load(&part.sum[g][d + v * 16]);
    for (int b = 0; b < kGroupBlocks; b++) {
        const bf16* values = at.values[b] + d * 2;
        const bf16* upcoming = next.values[b] + d * 2;
#pragma GCC unroll 2
        for (int t = 0; t < kBlockTokens; t += 2) {
            i32x16 pair[G];
#pragma GCC unroll 4
            for (int g = 0; g < G; g++) pair[g] = splat_word(&weights[g][b * kBlockTokens + t]);
#pragma GCC unroll 4
            for (int v = 0; v < V; v++) {
                i32x16 value = load_as<i32x16>(values + t * dim + v * 32);
                prefetch(upcoming + t * dim + v * 32);
#pragma GCC unroll 4
                for (int g = 0; g < G; g++) acc[g][v] = dot_bf16(acc[g][v], pair[g], value);
            }
        }
    }
#pragma GCC unroll 4
    for (int g = 0; g < G; g++)
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) store(&part.sum[g][d + v * 16], acc[g][v]);
}

// Turns scores (in units of log2) of one head into bf16 weights; rescales what was summed when the maximum rises.
PW_INLINE void group_softmax(f32x16 (&scores)[kGroupBlocks], int first, const Span& span, int dim, int g, Partial& part,
                             bf16* weights) {
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
        store_bf16(weights + b * kBlockTokens, weight);
    }
    part.weight[g] += reduce_add(total);
}

// Attention of G heads (queries bf16 [G, dim], scaled by log2(e) / sqrt(dim)) over `span`.
template <int G>
void decode_attention(const KvCache& cache, int layer, int head, const bf16* query, const Span& span, Partial& part) {
    const int dim = cache.dim, blocks = (span.end + kBlockTokens - 1) / kBlockTokens;
    for (int g = 0; g < G; g++) {
        part.weight[g] = 0, part.maximum[g] = -INFINITY;
        for (int d = 0; d < dim; d += 16) store(&part.sum[g][d], f32x16{});
    }
    alignas(64) bf16 weights[G][kGroupTokens];
    int block = span.begin / kBlockTokens;
    GroupPointers at = group_at(cache, layer, head, span, block, blocks);
    for (; block < blocks; block += kGroupBlocks) {
        const GroupPointers next = group_at(cache, layer, head, span, block + kGroupBlocks, blocks);
        f32x16 scores[G][kGroupBlocks];
        group_scores<G>(query, dim, at, next, scores);
#pragma GCC unroll 4
        for (int g = 0; g < G; g++) group_softmax(scores[g], block * kBlockTokens, span, dim, g, part, weights[g]);
        for (int d = 0; d < dim; d += 64) {
            if (dim - d >= 64) group_values<G, 4>(weights, dim, d, at, next, part);
            else if (dim - d == 48) group_values<G, 3>(weights, dim, d, at, next, part);
            else if (dim - d == 32) group_values<G, 2>(weights, dim, d, at, next, part);
            else group_values<G, 1>(weights, dim, d, at, next, part);
        }
        at = next;
    }
}

inline void decode_attention(const KvCache& cache, int layer, int head, int heads, const bf16* query, const Span& span,
                             Partial& part) {
    switch (heads) {
        case 1: return decode_attention<1>(cache, layer, head, query, span, part);
        case 2: return decode_attention<2>(cache, layer, head, query, span, part);
        case 3: return decode_attention<3>(cache, layer, head, query, span, part);
        default: return decode_attention<4>(cache, layer, head, query, span, part);
    }
}

}  // namespace pagewire
