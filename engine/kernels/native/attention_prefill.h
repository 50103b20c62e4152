// Attention of many query tokens of one sequence: small matrix products between tiles of queries and chunks of keys.
//
//      rows of a task: `tokens` query tokens x the heads that share a KV head, token-major
//      for each chunk of 256 keys (K and V stay in the L2 cache):
//          for each strip of up to 12 rows:   scores = Q K^T -> softmax, running maximum -> sum += P V
#pragma once

#include <algorithm>
#include <vector>

#include "attention_decode.h"

namespace pagewire {

constexpr int kChunkBlocks = 16;
constexpr int kChunkTokens = kChunkBlocks * kBlockTokens;

// scores[r][0:32] of two blocks of keys.
template <int Rows>
PW_INLINE void score_tile(const bf16* query, int dim, const bf16* keys0, const bf16* keys1, float* scores) {
    f32x16 acc[Rows][2];
#pragma GCC unroll 16
    for (int r = 0; r < Rows; r++) acc[r][0] = acc[r][1] = f32x16{};
    for (int d = 0; d < dim; d += 2) {
        i32x16 k0 = load_as<i32x16>(keys0 + d * kBlockTokens), k1 = load_as<i32x16>(keys1 + d * kBlockTokens);
#pragma GCC unroll 16
        for (int r = 0; r < Rows; r++) {
            i32x16 pair = splat_word(query + r * dim + d);
            acc[r][0] = dot_bf16(acc[r][0], pair, k0);
            acc[r][1] = dot_bf16(acc[r][1], pair, k1);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < Rows; r++) {
        store(scores + r * kChunkTokens, acc[r][0]);
        store(scores + r * kChunkTokens + 16, acc[r][1]);
    }
}

// sum[r][d : d + 16 V] += weights[r] V over `blocks` blocks.
template <int Rows, int V>
PW_INLINE void value_tile(const bf16* weights, const bf16* const* values, int blocks, int dim, int d, float* sum) {
    f32x16 acc[Rows][V];
#pragma GCC unroll 16
    for (int r = 0; r < Rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < V; v++) acc[r][v] = load(sum + r * dim + d + v * 16);
    for (int b = 0; b < blocks; b++) {
        const bf16* from = values[b] + d * 2;
        for (int t = 0; t < kBlockTokens; t += 2) {
            i32x16 value[V];
#pragma GCC unroll 2
            for (int v = 0; v < V; v++) value[v] = load_as<i32x16>(from + t * dim + v * 32);
#pragma GCC unroll 16
            for (int r = 0; r < Rows; r++) {
                i32x16 pair = splat_word(weights + r * kChunkTokens + b * kBlockTokens + t);
#pragma GCC unroll 2
                for (int v = 0; v < V; v++) acc[r][v] = dot_bf16(acc[r][v], pair, value[v]);
            }
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < Rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < V; v++) store(sum + r * dim + d + v * 16, acc[r][v]);
}

// One strip against one chunk.
struct StripWork {
    const bf16* query;  // [rows, dim]
    const bf16* const* keys;
    const bf16* const* values;
    int blocks, dim;
    const int* begin;  // visible keys of each row, relative to the chunk, within [0, 16 * blocks]
    const int* end;
    float* sum;      // [rows, dim]
    float* weight;   // [rows]
    float* maximum;  // [rows]
};

// Softmax of one row over `width` scores (a multiple of 32) of which [begin, end) are visible.
PW_INLINE void strip_softmax(float* scores, bf16* weights, int width, int begin, int end, int dim, float* sum,
                             float& weight, float& largest_so_far) {
    if (begin >= end) {
        for (int i = 0; i < width; i += 32) memset(weights + i, 0, 64);
        return;
    }
    const i32x16 lane{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    auto mask = [&](int i) {
        i32x16 position = lane + i;
        store(scores + i, (position >= begin) & (position < end) ? load(scores + i) : splat(kHidden));
    };
    for (int i = 0; i < begin; i += 16) mask(i);
    for (int i = end / 16 * 16; i < width; i += 16) mask(i);
    f32x16 largest[2] = {load(scores), load(scores + 16)};
    for (int i = 32; i < width; i += 32) {
        largest[0] = maximum(largest[0], load(scores + i));
        largest[1] = maximum(largest[1], load(scores + i + 16));
    }
    const float most = reduce_max(maximum(largest[0], largest[1]));
    if (most > largest_so_far) {
        if (weight > 0) {
            const float shrink = std::exp2(largest_so_far - most);
            weight *= shrink;
            for (int d = 0; d < dim; d += 16) store(sum + d, load(sum + d) * splat(shrink));
        }
        largest_so_far = most;
    }
    const f32x16 shift = splat(largest_so_far);
    f32x16 total[2] = {};
    for (int i = 0; i < width; i += 32) {
        const f32x16 first = exp2_coarse(load(scores + i) - shift), second = exp2_coarse(load(scores + i + 16) - shift);
        total[0] += first;
        total[1] += second;
        store_bf16(weights + i, first);
        store_bf16(weights + i + 16, second);
    }
    weight += reduce_add(total[0] + total[1]);
}

template <int Rows>
__attribute__((noinline)) void strip(const StripWork& work) {
    alignas(64) float scores[Rows * kChunkTokens];
    alignas(64) bf16 weights[Rows * kChunkTokens];
    const int pairs = (work.blocks + 1) / 2;
    for (int p = 0; p < pairs; p++)
        score_tile<Rows>(work.query, work.dim, work.keys[2 * p], work.keys[2 * p + 1], scores + p * 32);
    for (int r = 0; r < Rows; r++)
        strip_softmax(scores + r * kChunkTokens, weights + r * kChunkTokens, pairs * 32, work.begin[r], work.end[r], work.dim,
                      work.sum + r * work.dim, work.weight[r], work.maximum[r]);
    int d = 0;
    for (; d + 32 <= work.dim; d += 32) value_tile<Rows, 2>(weights, work.values, work.blocks, work.dim, d, work.sum);
    if (d < work.dim) value_tile<Rows, 1>(weights, work.values, work.blocks, work.dim, d, work.sum);
}

template <int Rows = kTileRows>
PW_INLINE void any_strip(int rows, const StripWork& work) {
    if constexpr (Rows > 0) {
        if (rows == Rows) strip<Rows>(work);
        else any_strip<Rows - 1>(rows, work);
    }
}

// Query tokens of one sequence at positions first .. first + tokens - 1, for the `heads` heads of KV head `head`.
struct PrefillTile {
    const int32_t* block_table;
    int first, tokens, heads, window;  // window 0: none
    const bf16* query;                 // of the tile's first token and the KV head's first query head
    size_t query_stride;               // elements from one token to the next
    bf16* out;                         // the same layout as query
};

// Working memory of one thread.
struct PrefillScratch {
    std::vector<bf16> query;
    std::vector<float> sum, weight, maximum;
    std::vector<int> begin, end;

    void prepare(int rows, int dim) {
        if ((int)weight.size() < rows) weight.resize(rows), maximum.resize(rows), begin.resize(rows), end.resize(rows);
        if ((int)query.size() < rows * dim) query.resize(rows * dim), sum.resize(rows * dim);
        std::fill_n(sum.begin(), rows * dim, 0.0f);
        std::fill_n(weight.begin(), rows, 0.0f);
        std::fill_n(maximum.begin(), rows, -INFINITY);
    }
};

// One chunk of keys, positions chunk .. chunk + 255, against every strip of the tile that sees any of it.
inline void prefill_chunk(const KvCache& cache, int layer, int head, const PrefillTile& tile, int chunk, PrefillScratch& s) {
    const int dim = cache.dim, rows = tile.tokens * tile.heads, last = tile.first + tile.tokens;
    const int blocks = std::min(kChunkBlocks, (last - chunk + kBlockTokens - 1) / kBlockTokens);
    const bf16 *keys[kChunkBlocks + 1], *values[kChunkBlocks + 1];
    for (int b = 0; b <= blocks; b++) {  // one more for scores, which come in pairs of blocks
        const int32_t block = tile.block_table[chunk / kBlockTokens + std::min(b, blocks - 1)];
        keys[b] = cache.keys(layer, block, head);
        values[b] = cache.values(layer, block, head);
    }
    for (int r = 0; r < rows; r++) {
        const int position = tile.first + r / tile.heads;
        s.end[r] = std::clamp(position + 1 - chunk, 0, kChunkTokens);
        s.begin[r] = tile.window ? std::clamp(position + 1 - tile.window - chunk, 0, kChunkTokens) : 0;
    }
    const int strips = (rows + kTileRows - 1) / kTileRows;
    for (int i = 0; i < strips; i++) {
        const int row = rows * i / strips, count = rows * (i + 1) / strips - row;
        const int seen = s.end[row + count - 1];
        if (seen == 0 || s.begin[row] >= kChunkTokens) continue;
        any_strip(count, {&s.query[row * dim], keys, values, (seen + kBlockTokens - 1) / kBlockTokens, dim, &s.begin[row],
                          &s.end[row], &s.sum[row * dim], &s.weight[row], &s.maximum[row]});
    }
}

inline void prefill_attention(const KvCache& cache, int layer, int head, const PrefillTile& tile, PrefillScratch& s) {
    const int dim = cache.dim, rows = tile.tokens * tile.heads;
    s.prepare(rows, dim);
    for (int r = 0; r < rows; r++)
        memcpy(&s.query[r * dim], tile.query + r / tile.heads * tile.query_stride + r % tile.heads * dim, dim * sizeof(bf16));
    const int first_seen = tile.window ? std::max(0, tile.first + 1 - tile.window) : 0;
    for (int chunk = first_seen / kBlockTokens * kBlockTokens; chunk < tile.first + tile.tokens; chunk += kChunkTokens)
        prefill_chunk(cache, layer, head, tile, chunk, s);
    for (int r = 0; r < rows; r++) {
        bf16* out = tile.out + r / tile.heads * tile.query_stride + r % tile.heads * dim;
        for (int d = 0; d < dim; d += 16) store_bf16(out + d, load(&s.sum[r * dim + d]) * splat(1.0f / s.weight[r]));
    }
}

}  // namespace pagewire
