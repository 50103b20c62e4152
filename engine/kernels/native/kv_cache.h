// The paged KV cache: blocks of 16 tokens, laid out so that attention is made of whole-vector products.
//
//      K of one block and head: [dim / 2][16 tokens][2]      V of one block and head: [8 token pairs][dim][2]
//
//      d=0,1 | k[t0,0] k[t0,1] | ... | k[t15,0] k[t15,1] |   t=0,1 | v[t0,0] v[t1,0] | ... | v[t0,dim-1] v[t1,dim-1] |
//      d=2,3 | k[t0,2] k[t0,3] | ...                         t=2,3 | v[t2,0] v[t3,0] | ...
//
// A vector of K is one pair of dimensions of all 16 tokens: the scores of a query need no horizontal sums. A vector of V
// is 16 dimensions of two tokens: likewise for the weighted sum.
#pragma once

#include "memory.h"
#include "simd.h"

namespace pagewire {

constexpr int kBlockTokens = 16;
constexpr int kMaxHeadDim = 256;

struct KvCache {
    HugeBuffer buffer;
    int kv_heads = 0, dim = 0;
    size_t blocks = 0;

    // Elements of one block and head, of K or of V.
    size_t tile() const { return (size_t)kBlockTokens * dim; }

    void allocate(int layers, size_t blocks_, int kv_heads_, int dim_) {
        blocks = blocks_, kv_heads = kv_heads_, dim = dim_;
        buffer.allocate(2 * layers * blocks * kv_heads * tile() * sizeof(bf16));
    }
    bf16* keys(int layer, size_t block, int head) const {
        return (bf16*)buffer.data() + ((2 * layer * blocks + block) * kv_heads + head) * tile();
    }
    bf16* values(int layer, size_t block, int head) const {
        return (bf16*)buffer.data() + (((2 * layer + 1) * blocks + block) * kv_heads + head) * tile();
    }

    // Writes one token of one head (float32 [dim] each) at slot = block * 16 + offset.
    void write(int layer, int64_t slot, int head, const float* key, const float* value) const {
        const int offset = (int)(slot % kBlockTokens);
        alignas(64) bf16 rounded[kMaxHeadDim];
        for (int d = 0; d < dim; d += kLanes) store_bf16(rounded + d, load(key + d));
        bf16* k = keys(layer, slot / kBlockTokens, head) + offset * 2;
        for (int d = 0; d < dim; d += 2) memcpy(k + d * kBlockTokens, rounded + d, 2 * sizeof(bf16));
        for (int d = 0; d < dim; d += kLanes) store_bf16(rounded + d, load(value + d));
        bf16* v = values(layer, slot / kBlockTokens, head) + (size_t)(offset / 2) * dim * 2 + offset % 2;
        for (int d = 0; d < dim; d++) v[d * 2] = rounded[d];
    }

    // Zeroes V in the slots of a block after `slot`. Attention multiplies what is there by a weight of zero, and what a
    // block's former owner left behind may be NaN. Wanted once a block, with the last token first written to it.
    void clear_after(int layer, int64_t slot, int head) const {
        bf16* v = values(layer, slot / kBlockTokens, head);
        for (int offset = (int)(slot % kBlockTokens) + 1; offset < kBlockTokens; offset++) {
            bf16* to = v + (size_t)(offset / 2) * dim * 2 + offset % 2;
            for (int d = 0; d < dim; d++) to[d * 2] = 0;
        }
    }
};

}  // namespace pagewire
