// A decoder of the Llama family: its shape, packed weights, KV cache and working memory.
#pragma once

#include <memory>
#include <vector>

#include "kv_cache.h"
#include "linear.h"
#include "thread_pool.h"

namespace pagewire {

// Mirrored by the ctypes structures of bindings.py: keep the order.
struct Config {
    int32_t hidden, inner, layers, heads, kv_heads, head_dim, vocab, threads;
    int32_t format;     // of the projections
    int32_t kv_format;  // of the KV cache
    float norm_eps;
    float rope_scale;                  // what cosines and sines are multiplied by
    const float* inverse_frequencies;  // [head_dim / 2], copied
    const int32_t* windows;            // [layers], 0 for none, copied
    const bf16* embeddings;            // [vocab, hidden], kept by the caller while the model lives
};

// One step: rows of tokens laid end to end. See engine/batch.py for the meaning of each array.
struct Batch {
    int32_t tokens, rows, logit_rows, hidden_rows, max_blocks;
    const int64_t* token_ids;
    const int64_t* positions;
    const int64_t* slot_mapping;
    const int32_t* block_tables;
    const int32_t* seq_lens;
    const int32_t* query_starts;
    const int64_t* logit_indices;
    const int64_t* hidden_indices;  // tokens whose final normed states are wanted
    float* logits;                  // [logit_rows, vocab], written
    float* hidden;                  // [hidden_rows, hidden], written

    // Tokens that the last layer is computed to the end for.
    int kept_rows() const { return logit_rows + hidden_rows; }
    int kept_token(int row) const { return (int)(row < logit_rows ? logit_indices[row] : hidden_indices[row - logit_rows]); }
};

struct Layer {
    Linear qkv, output, gate_up, down;
    std::vector<float> attention_norm, mlp_norm;
    std::vector<float> query_norm, key_norm;  // empty where the model has none
    int window = 0;
};

// Room for quantized rows of up to k values.
struct QuantizedBuffer {
    HugeBuffer values, scales, offsets;
    size_t count = 0;

    void allocate(size_t rows, size_t k) {
        count = rows;
        values.allocate(rows * k);
        scales.allocate(rows * (k / kGroup) * sizeof(float));
        offsets.allocate(rows * (k / kGroup) * sizeof(int32_t));
    }
    QuantizedRows rows() const { return {(int8_t*)values.data(), (float*)scales.data(), (int32_t*)offsets.data(), count}; }
};

// Buffers for up to `tokens` tokens; what a phase writes is read by the next ones.
struct Workspace {
    int tokens = 0;
    HugeBuffer stream, query, attention, inner, normed, rotation;
    QuantizedBuffer quantized, quantized_inner;
    HugeBuffer kept_stream, kept_attention;  // of the tokens whose logits are wanted: the last layer goes on with these

    // Room for a step of `wanted` tokens, of which `kept` (repeated ones counted) go through the whole last layer.
    void reserve(const Config& c, int wanted, int kept) {
        if (std::max(wanted, kept) <= tokens) return;
        wanted = std::max(wanted, kept);
        const size_t n = tokens = wanted;
        const size_t heads_dim = (size_t)c.heads * c.head_dim;
        stream.allocate(n * c.hidden * sizeof(float));
        query.allocate(n * heads_dim * sizeof(bf16));
        attention.allocate(n * heads_dim * sizeof(bf16));
        kept_stream.allocate(n * c.hidden * sizeof(float));
        kept_attention.allocate(n * heads_dim * sizeof(bf16));
        inner.allocate(n * c.inner * sizeof(bf16));
        normed.allocate(n * c.hidden * sizeof(bf16));
        rotation.allocate(n * c.head_dim * sizeof(float));
        if ((Format)c.format != Format::kInt8) return;
        quantized.allocate(n, std::max((size_t)c.hidden, heads_dim));
        quantized_inner.allocate(n, c.inner);
    }
    // What goes into a projection: in bf16, or what stands for it in int8.
    Activations activations(const HugeBuffer& values) const { return {(bf16*)values.data(), quantized.rows()}; }
    Activations inner_activations() const { return {(bf16*)inner.data(), quantized_inner.rows()}; }
};

struct Model {
    Config config;
    std::vector<float> inverse_frequencies, final_norm;
    std::vector<Layer> layers;
    Linear head;
    KvCache cache;
    Workspace workspace;
    ThreadPool pool;

    explicit Model(const Config& c)
        : config(c), inverse_frequencies(c.inverse_frequencies, c.inverse_frequencies + c.head_dim / 2), layers(c.layers),
          pool(c.threads) {
        for (int i = 0; i < c.layers; i++) layers[i].window = c.windows[i];
        config.inverse_frequencies = nullptr, config.windows = nullptr;
    }
    Format format() const { return (Format)config.format; }
    int query_dim() const { return config.heads * config.head_dim; }
    // Each head begins a panel of the fused projection, and ends one with columns of nothing.
    int head_panels() const { return (config.head_dim + kPanel - 1) / kPanel; }
    int qkv_columns() const { return (config.heads + 2 * config.kv_heads) * head_panels() * kPanel; }
};

}  // namespace pagewire
