// The paged KV cache: blocks of 16 tokens, laid out so that attention is made of whole-vector products.
//
// K and V of one block, layer and KV head lie together in a tile:
//
//      bf16   K [dim / 2][16 tokens][2]   V [8 token pairs][dim][2]
//      int8   K [dim / 4][16 tokens][4]   V [8 token pairs][dim][2]   scales of K [16 tokens]   scales of V [16 tokens]
//
//      d=0,1 | k[t0,0] k[t0,1] | ... | k[t15,0] k[t15,1] |   t=0,1 | v[t0,0] v[t1,0] | ... | v[t0,dim-1] v[t1,dim-1] |
//      d=2,3 | k[t0,2] k[t0,3] | ...                         t=2,3 | v[t2,0] v[t3,0] | ...
//
// A vector of K is some dimensions of all 16 tokens: the scores of a query need no horizontal sums. A vector of V is 16
// dimensions of two tokens: likewise for the weighted sum. In int8 every token and head has a float32 scale for K and one
// for V; K is stored unsigned (value + 128), as the weights of a projection are.
#pragma once

#include <algorithm>
#include <cmath>

#include "memory.h"
#include "simd.h"

namespace pagewire {

constexpr int kBlockTokens = 16;
constexpr int kMaxHeadDim = 256;

enum class KvFormat : int32_t { kBf16 = 0, kInt8 = 1 };

struct KvCache {
    HugeBuffer buffer;
    KvFormat format = KvFormat::kBf16;
    int layers = 0, kv_heads = 0, dim = 0;
    size_t blocks = 0;

    // Bytes of the K, or of the V, of a tile.
    size_t part_bytes() const { return (size_t)kBlockTokens * dim * (format == KvFormat::kBf16 ? sizeof(bf16) : 1); }
    size_t tile_bytes() const {
        return 2 * part_bytes() + (format == KvFormat::kInt8 ? 2 * kBlockTokens * sizeof(float) : 0);
    }
    void allocate(int layers_, size_t blocks_, int kv_heads_, int dim_, KvFormat format_) {
        layers = layers_, blocks = blocks_, kv_heads = kv_heads_, dim = dim_, format = format_;
        buffer.allocate(layers * layer_bytes());
    }
    size_t layer_bytes() const { return blocks * kv_heads * tile_bytes(); }
    char* tile(int layer, size_t block, int head) const {
        return (char*)buffer.data() + layer * layer_bytes() + (block * kv_heads + head) * tile_bytes();
    }

    // Asks the system for the memory of the first `wanted` blocks, some 2 MB more with each call: a page that is first
    // touched within a step holds it up. False when there is nothing left to ask for.
    bool prepare(size_t wanted) {
        if (prepared_ >= std::min(wanted, blocks)) return false;
        const size_t block_bytes = kv_heads * tile_bytes(), count = std::min(blocks - prepared_, ((size_t)2 << 20) / block_bytes + 1);
        if (!populate(tile(next_layer_, prepared_, 0), count * block_bytes)) {
            prepared_ = blocks;
            return false;
        }
        if (++next_layer_ == layers) next_layer_ = 0, prepared_ += count;
        return true;
    }

    // Writes K, or V, of one token and head (float32 [dim]) at slot = block * 16 + offset.
    void write_key(int layer, int64_t slot, int head, const float* key) const {
        char* to = tile(layer, slot / kBlockTokens, head);
        const int offset = (int)(slot % kBlockTokens);
        if (format == KvFormat::kBf16) {
            alignas(64) bf16 rounded[kMaxHeadDim];
            for (int d = 0; d < dim; d += kLanes) store_bf16(rounded + d, load(key + d));
            for (int d = 0; d < dim; d += 2) memcpy((bf16*)to + d * kBlockTokens + offset * 2, rounded + d, 2 * sizeof(bf16));
            return;
        }
        alignas(64) int8_t rounded[kMaxHeadDim];
        scales(to)[offset] = round_to_int8(key, dim, 128, rounded).scale;
        for (int d = 0; d < dim; d += 4) memcpy(to + d * kBlockTokens + offset * 4, rounded + d, 4);
    }
    void write_value(int layer, int64_t slot, int head, const float* value) const {
        char* to = tile(layer, slot / kBlockTokens, head);
        const int offset = (int)(slot % kBlockTokens);
        if (format == KvFormat::kBf16) {
            alignas(64) bf16 rounded[kMaxHeadDim];
            for (int d = 0; d < dim; d += kLanes) store_bf16(rounded + d, load(value + d));
            put_value((bf16*)(to + part_bytes()), offset, rounded);
            return;
        }
        alignas(64) int8_t rounded[kMaxHeadDim];
        scales(to)[kBlockTokens + offset] = round_to_int8(value, dim, 0, rounded).scale;
        put_value((int8_t*)(to + part_bytes()), offset, rounded);
    }

    // Makes V nothing in the slots of a block after `slot`. Attention multiplies what is there by a weight of zero, and
    // what a block's former owner left behind may be NaN. Wanted once a block, with the last token first written to it.
    void clear_after(int layer, int64_t slot, int head) const {
        char* at = tile(layer, slot / kBlockTokens, head);
        const int first = (int)(slot % kBlockTokens) + 1;
        if (format == KvFormat::kInt8) {
            for (int offset = first; offset < kBlockTokens; offset++) scales(at)[kBlockTokens + offset] = 0;
            return;
        }
        for (int offset = first; offset < kBlockTokens; offset++) {
            bf16* to = (bf16*)(at + part_bytes()) + (size_t)(offset / 2) * dim * 2 + offset % 2;
            for (int d = 0; d < dim; d++) to[d * 2] = 0;
        }
    }

  private:
    size_t prepared_ = 0;  // blocks whose memory is there in all layers
    int next_layer_ = 0;   // the first that lacks what comes next

    // int8: 16 scales of K, then 16 of V.
    float* scales(char* tile) const { return (float*)(tile + 2 * part_bytes()); }
    template <class Value>
    void put_value(Value* values, int offset, const Value* from) const {
        Value* to = values + (size_t)(offset / 2) * dim * 2 + offset % 2;
        for (int d = 0; d < dim; d++) to[d * 2] = from[d];
    }
};

}  // namespace pagewire
