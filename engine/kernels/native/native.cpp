// The C interface: plain structures and pointers, called through ctypes.
//
// The same source is compiled once per instruction set into a library of its own (see build.py), so that no function
// of one set can be linked into another's.
#include <exception>

#include "step.h"

using namespace pagewire;

namespace {

struct Handle {
    explicit Handle(const Config& config) : model(config), step(model) {}
    ~Handle() { model.pool.settle(); }  // a late thread still reads the step
    Model model;
    Step step;
};

// The projections of a layer, in the order of bindings.py.
enum Projection : int32_t { kQkv, kOutput, kGateUp, kDown, kHead };
// The norm weights of a layer, likewise.
enum Norm : int32_t { kAttentionNorm, kMlpNorm, kQueryNorm, kKeyNorm, kFinalNorm };

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// Returns null where memory is short.
void* pw_create(const Config* config) {
    try {
        return new Handle(*config);
    } catch (const std::exception&) {
        return nullptr;
    }
}

void pw_destroy(void* handle) { delete (Handle*)handle; }

// Packs row-major float32 weights [n, k] with an optional bias [n]. gate_up is gate's rows, then up's.
// A format other than the model's is for a projection worth more precision: kBf16, beside kInt8WeightOnly.
int32_t pw_set_projection(void* handle, int32_t layer, int32_t which, int32_t format, const float* weight, const float* bias,
                          int32_t n, int32_t k) {
    Model& model = ((Handle*)handle)->model;
    Linear* linears[] = {&model.layers[layer].qkv, &model.layers[layer].output, &model.layers[layer].gate_up,
                         &model.layers[layer].down, &model.head};
    // 16 columns of gate and the 16 of up that belong to them share a panel, so that they meet in registers.
    auto paired = [n](int column) { return column / kPanel * kLanes + column % kLanes + (column % kPanel < kLanes ? 0 : n / 2); };
    const int dim = model.config.head_dim, padded = model.head_panels() * kPanel;
    auto by_head = [=](int column) { return column % padded < dim ? column / padded * dim + column % padded : -1; };
    try {
        if (which == kGateUp) linears[which]->pack(weight, bias, n, k, (Format)format, paired);
        else if (which == kQkv) linears[which]->pack(weight, bias, model.qkv_columns(), k, (Format)format, by_head);
        else linears[which]->pack(weight, bias, n, k, (Format)format, [](int column) { return column; });
    } catch (const std::exception&) {
        return 1;
    }
    return 0;
}

void pw_set_norm(void* handle, int32_t layer, int32_t which, const float* weight, int32_t n) {
    Model& model = ((Handle*)handle)->model;
    Layer& at = model.layers[layer];
    std::vector<float>* norms[] = {&at.attention_norm, &at.mlp_norm, &at.query_norm, &at.key_norm, &model.final_norm};
    norms[which]->assign(weight, weight + n);
}

int32_t pw_allocate_kv(void* handle, int64_t blocks) {
    Model& model = ((Handle*)handle)->model;
    try {
        model.cache.allocate(model.config.layers, blocks, model.config.kv_heads, model.config.head_dim, (KvFormat)model.config.kv_format);
    } catch (const std::exception&) {
        return 1;
    }
    return 0;
}

// See KvCache::prepare; 1 is true.
int32_t pw_prepare_kv(void* handle, int64_t blocks) { return ((Handle*)handle)->model.cache.prepare(blocks); }

int32_t pw_forward(void* handle, const Batch* batch) {
    try {
        ((Handle*)handle)->step.run(*batch);
    } catch (const std::exception&) {
        return 1;
    }
    return 0;
}

}  // extern "C"
#pragma GCC visibility pop
