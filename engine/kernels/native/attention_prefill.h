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

// A chunk of keys: its tiles, one more than `blocks` for scores, which come in pairs of blocks.
struct Chunk {
    const char* tiles[kChunkBlocks + 1];
    int blocks, dim;
    size_t part_bytes;
    alignas(64) float factors[kChunkTokens];  // see Int8Kv::Weights
};

// Rows of queries over a cache in bf16: as they come.
struct Bf16Rows {
    using Kv = Bf16Kv;
    const bf16* values;  // [rows, dim], scaled by log2(e) / sqrt(dim)

    Bf16Rows from(int row, int dim) const { return {values + row * dim}; }
    PW_INLINE float scale(int) const { return 1.0f; }  // of the scores

    // scores[r][0:32] of blocks 2p and 2p + 1.
    template <int Rows>
    PW_INLINE void score_tile(const Chunk& chunk, int p, float* scores) const {
        const int dim = chunk.dim;
        const char *keys0 = chunk.tiles[2 * p], *keys1 = chunk.tiles[2 * p + 1];
        f32x16 acc[Rows][2];
#pragma GCC unroll 16
        for (int r = 0; r < Rows; r++) acc[r][0] = acc[r][1] = f32x16{};
        for (int d = 0; d < dim; d += 2) {
            i32x16 k0 = load_as<i32x16>(keys0 + d / 2 * 64), k1 = load_as<i32x16>(keys1 + d / 2 * 64);
#pragma GCC unroll 16
            for (int r = 0; r < Rows; r++) {
                i32x16 pair = splat_word(values + r * dim + d);
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
    static Bf16Kv::Weights weights(Chunk&) { return {}; }
};

// Rows of queries over a cache in int8: each row rounded to 8 bits with a scale of its own.
struct Int8Rows {
    using Kv = Int8Kv;
    const int8_t* values;    // [rows, dim]
    const float* scales;     // [rows]
    const int32_t* offsets;  // [rows]: -128 times the row's sum

    Int8Rows from(int row, int dim) const { return {values + row * dim, scales + row, offsets + row}; }
    PW_INLINE float scale(int row) const { return scales[row]; }

    template <int Rows>
    PW_INLINE void score_tile(const Chunk& chunk, int p, float* scores) const {
        const int dim = chunk.dim;
        const char *keys0 = chunk.tiles[2 * p], *keys1 = chunk.tiles[2 * p + 1];
        i32x16 acc[Rows][2];
#pragma GCC unroll 16
        for (int r = 0; r < Rows; r++) acc[r][0] = acc[r][1] = splat_word(offsets + r);
        for (int d = 0; d < dim; d += 4) {
            i32x16 k0 = load_as<i32x16>(keys0 + d / 4 * 64), k1 = load_as<i32x16>(keys1 + d / 4 * 64);
#pragma GCC unroll 16
            for (int r = 0; r < Rows; r++) {
                i32x16 four = splat_word(values + r * dim + d);
                acc[r][0] = dot_int8(acc[r][0], k0, four);
                acc[r][1] = dot_int8(acc[r][1], k1, four);
            }
        }
        const f32x16 scale0 = load((const float*)(keys0 + 2 * chunk.part_bytes)), scale1 = load((const float*)(keys1 + 2 * chunk.part_bytes));
#pragma GCC unroll 16
        for (int r = 0; r < Rows; r++) {
            store(scores + r * kChunkTokens, __builtin_convertvector(acc[r][0], f32x16) * scale0);
            store(scores + r * kChunkTokens + 16, __builtin_convertvector(acc[r][1], f32x16) * scale1);
        }
    }
    static Int8Kv::Weights weights(Chunk& chunk) {
        const float* scales[kChunkBlocks + 1];
        for (int b = 0; b <= chunk.blocks; b++) scales[b] = (const float*)(chunk.tiles[b] + 2 * chunk.part_bytes) + kBlockTokens;
        return Int8Kv::weights_for(scales, std::min(chunk.blocks + 1, kChunkBlocks), chunk.factors);
    }
};

// sum[r][d : d + 16 V] += weights[r] V over `blocks` blocks.
template <class Kv, int Rows, int V>
PW_INLINE void value_tile(const typename Kv::Weight* weights, const typename Kv::Weights& worth, const Chunk& chunk,
                          int blocks, int d, float* sum) {
    const int dim = chunk.dim;
    typename Kv::Sum acc[Rows][V];
#pragma GCC unroll 16
    for (int r = 0; r < Rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < V; v++) acc[r][v] = Kv::start(sum + r * dim + d + v * 16);
    for (int b = 0; b < blocks; b++) {
        const char* from = chunk.tiles[b] + chunk.part_bytes + (size_t)d * Kv::kPairBytes;
        for (int t = 0; t < kBlockTokens; t += 2) {
            i32x16 value[V];
#pragma GCC unroll 2
            for (int v = 0; v < V; v++) value[v] = Kv::load_values(from + (size_t)(t / 2 * dim + v * 16) * Kv::kPairBytes);
#pragma GCC unroll 16
            for (int r = 0; r < Rows; r++) {
                i32x16 pair = splat_word(weights + r * kChunkTokens + b * kBlockTokens + t);
#pragma GCC unroll 2
                for (int v = 0; v < V; v++) acc[r][v] = Kv::dot(acc[r][v], pair, value[v]);
            }
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < Rows; r++)
#pragma GCC unroll 2
        for (int v = 0; v < V; v++) Kv::finish(sum + r * dim + d + v * 16, acc[r][v], worth);
}

// One strip against one chunk.
template <class Queries>
struct StripWork {
    Queries query;
    const Chunk& chunk;
    typename Queries::Kv::Weights worth;
    int blocks;        // of the chunk, that any row sees
    const int* begin;  // visible keys of each row, relative to the chunk, within [0, 16 * blocks]
    const int* end;
    float* sum;      // [rows, dim]
    float* weight;   // [rows]
    float* maximum;  // [rows]
};

// Softmax of one row over `width` scores (a multiple of 32), in units of `scale`, of which [begin, end) are visible.
template <class Kv>
PW_INLINE void strip_softmax(float* scores, float scale, typename Kv::Weight* weights, const typename Kv::Weights& worth,
                             int width, int begin, int end, int dim, float* sum, float& weight, float& largest_so_far) {
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
    const float most = reduce_max(maximum(largest[0], largest[1])) * scale;
    if (most > largest_so_far) {
        if (weight > 0) {
            const float shrink = std::exp2(largest_so_far - most);
            weight *= shrink;
            for (int d = 0; d < dim; d += 16) store(sum + d, load(sum + d) * splat(shrink));
        }
        largest_so_far = most;
    }
    const f32x16 shift = splat(largest_so_far), factor = splat(scale);
    f32x16 total[2] = {};
    for (int i = 0; i < width; i += 32) {
        const f32x16 first = exp2_coarse(load(scores + i) * factor - shift);
        const f32x16 second = exp2_coarse(load(scores + i + 16) * factor - shift);
        total[0] += first;
        total[1] += second;
        worth.put(weights + i, i, first);
        worth.put(weights + i + 16, i + 16, second);
    }
    weight += reduce_add(total[0] + total[1]);
}

template <class Queries, int Rows>
__attribute__((noinline)) void strip(const StripWork<Queries>& work) {
    using Kv = typename Queries::Kv;
    alignas(64) float scores[Rows * kChunkTokens];
    alignas(64) typename Kv::Weight weights[Rows * kChunkTokens];
    const int dim = work.chunk.dim, pairs = (work.blocks + 1) / 2;
    for (int p = 0; p < pairs; p++) work.query.template score_tile<Rows>(work.chunk, p, scores + p * 32);
    for (int r = 0; r < Rows; r++)
        strip_softmax<Kv>(scores + r * kChunkTokens, work.query.scale(r), weights + r * kChunkTokens, work.worth, pairs * 32,
                          work.begin[r], work.end[r], dim, work.sum + r * dim, work.weight[r], work.maximum[r]);
    int d = 0;
    for (; d + 32 <= dim; d += 32) value_tile<Kv, Rows, 2>(weights, work.worth, work.chunk, work.blocks, d, work.sum);
    if (d < dim) value_tile<Kv, Rows, 1>(weights, work.worth, work.chunk, work.blocks, d, work.sum);
}

template <class Queries, int Rows = kTileRows>
PW_INLINE void any_strip(int rows, const StripWork<Queries>& work) {
    if constexpr (Rows > 0) {
        if (rows == Rows) strip<Queries, Rows>(work);
        else any_strip<Queries, Rows - 1>(rows, work);
    }
}

// Query tokens of one sequence at positions first .. first + tokens - 1, for the `heads` heads of KV head `head`.
struct PrefillTile {
    const int32_t* block_table;
    int first, tokens, heads, window;  // window 0: none
    const bf16* query;                 // of the tile's first token and the KV head's first query head
    size_t query_stride;               // elements from one token to the next
    bf16* out;                         // the same layout as query

    size_t offset(int row, int dim) const { return row / heads * query_stride + row % heads * dim; }
};

// Working memory of one thread.
struct PrefillScratch {
    std::vector<bf16> query;
    std::vector<int8_t> rounded;  // int8: query once more, with scales and offsets
    std::vector<float> scales;
    std::vector<int32_t> offsets;
    std::vector<float> sum, weight, maximum;
    std::vector<int> begin, end;
    Chunk chunk;

    void prepare(int rows, int dim) {
        if ((int)weight.size() < rows) {
            for (auto* each : {&weight, &maximum, &scales}) each->resize(rows);
            for (auto* each : {&begin, &end}) each->resize(rows);
            offsets.resize(rows);
        }
        if ((int)query.size() < rows * dim) query.resize(rows * dim), rounded.resize(rows * dim), sum.resize(rows * dim);
        std::fill_n(sum.begin(), rows * dim, 0.0f);
        std::fill_n(weight.begin(), rows, 0.0f);
        std::fill_n(maximum.begin(), rows, -INFINITY);
    }
    // Rounds row r of `query`.
    void round(int r, int dim) {
        alignas(64) float wide[kMaxHeadDim];
        for (int d = 0; d < dim; d += kLanes) store(wide + d, load_bf16(&query[r * dim + d]));
        const Rounded row = round_to_int8(wide, dim, 0, &rounded[r * dim]);
        scales[r] = row.scale;
        offsets[r] = -128 * row.sum;
    }
};

// One chunk of keys, positions chunk .. chunk + 255, against every strip of the tile that sees any of it.
template <class Queries>
void prefill_chunk(const KvCache& cache, int layer, int head, const PrefillTile& tile, int first_key, const Queries& queries,
                   PrefillScratch& s) {
    const int dim = cache.dim, rows = tile.tokens * tile.heads, last = tile.first + tile.tokens;
    const int blocks = std::min(kChunkBlocks, (last - first_key + kBlockTokens - 1) / kBlockTokens);
    s.chunk.blocks = blocks, s.chunk.dim = dim, s.chunk.part_bytes = cache.part_bytes();
    for (int b = 0; b <= blocks; b++)
        s.chunk.tiles[b] = cache.tile(layer, tile.block_table[first_key / kBlockTokens + std::min(b, blocks - 1)], head);
    const auto worth = Queries::weights(s.chunk);
    for (int t = 0, r = 0; t < tile.tokens; t++) {
        const int after = tile.first + t + 1 - first_key;
        const int begin = tile.window ? std::clamp(after - tile.window, 0, kChunkTokens) : 0;
        for (int h = 0; h < tile.heads; h++, r++) s.begin[r] = begin, s.end[r] = std::clamp(after, 0, kChunkTokens);
    }
    const int strips = (rows + kTileRows - 1) / kTileRows;
    for (int i = 0; i < strips; i++) {
        const int row = rows * i / strips, count = rows * (i + 1) / strips - row;
        const int seen = s.end[row + count - 1];
        if (seen == 0 || s.begin[row] >= kChunkTokens) continue;
        any_strip<Queries>(count, {queries.from(row, dim), s.chunk, worth, (seen + kBlockTokens - 1) / kBlockTokens, &s.begin[row],
                                   &s.end[row], &s.sum[row * dim], &s.weight[row], &s.maximum[row]});
    }
}

inline void prefill_attention(const KvCache& cache, int layer, int head, const PrefillTile& tile, PrefillScratch& s) {
    const int dim = cache.dim, rows = tile.tokens * tile.heads;
    const bool int8 = cache.format == KvFormat::kInt8;
    s.prepare(rows, dim);
    for (int r = 0; r < rows; r++) {
        memcpy(&s.query[r * dim], tile.query + tile.offset(r, dim), dim * sizeof(bf16));
        if (int8) s.round(r, dim);
    }
    const int first_seen = tile.window ? std::max(0, tile.first + 1 - tile.window) : 0;
    for (int key = first_seen / kBlockTokens * kBlockTokens; key < tile.first + tile.tokens; key += kChunkTokens) {
        if (int8) prefill_chunk(cache, layer, head, tile, key, Int8Rows{s.rounded.data(), s.scales.data(), s.offsets.data()}, s);
        else prefill_chunk(cache, layer, head, tile, key, Bf16Rows{s.query.data()}, s);
    }
    for (int r = 0; r < rows; r++) {
        bf16* out = tile.out + tile.offset(r, dim);
        for (int d = 0; d < dim; d += 16) store_bf16(out + d, load(&s.sum[r * dim + d]) * splat(1.0f / s.weight[r]));
    }
}

}  // namespace pagewire
