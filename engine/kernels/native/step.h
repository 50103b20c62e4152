// One forward pass: the same sequence of phases on every thread.
#pragma once

#include <cmath>

#include "elementwise.h"
#include "schedule.h"

namespace pagewire {

class Step {
  public:
    explicit Step(Model& model) : m_(model), c_(model.config), w_(model.workspace), scratch_(model.pool.threads()) {}

    void run(const Batch& batch) {
        m_.pool.settle();
        schedule_.build(c_, m_.cache, batch, m_.pool.threads());
        w_.reserve(c_, batch.tokens, batch.kept_rows());
        partials_.resize(std::max(partials_.size(), (size_t)schedule_.parts));
        const size_t width = std::max(m_.head_panels() * kPanel, kGroup);
        for (auto& scratch : scratch_) {
            scratch.normed.resize((size_t)kPrivateRows * c_.hidden);
            scratch.results.resize((size_t)std::min(std::max(batch.tokens, batch.kept_rows()), Grid::block_rows(c_.hidden)) * width);
        }
        m_.pool.run(kPhasesPerLayer * c_.layers + 6, [this](Worker& worker) { walk(worker); });
    }

  private:
    static constexpr int kPhasesPerLayer = 10;
    // Up to this many rows every thread norms its own copy: cheaper than one more meeting of the threads.
    static constexpr int kPrivateRows = 4;

    struct Scratch {
        PrefillScratch prefill;
        std::vector<bf16> normed;
        std::vector<float> results;  // of a product's block of rows, on their way
        ReadAhead later;
    };

    // Rows that go through the second half of a layer.
    struct Rows {
        int count;
        float* stream;                // [count, hidden]
        const HugeBuffer* attention;  // [count, heads * head_dim]
    };

    void walk(Worker& worker) {
        const Batch& b = schedule_.batch;
        worker.phase(b.tokens, [&](int token) { embed(token); });
        const Rows all{b.tokens, stream(0), &w_.attention};
        for (int i = 0; i + 1 < c_.layers; i++) {
            self_attention(worker, i);
            mlp(worker, i, all);
        }
        // Past its attention, the last layer is only computed for the tokens of which something is wanted.
        const Rows kept{b.kept_rows(), (float*)w_.kept_stream.data(), &w_.kept_attention};
        self_attention(worker, c_.layers - 1);
        if (kept.count == 0) return;
        worker.phase(kept.count, [&](int row) { keep(row, b.kept_token(row)); });
        mlp(worker, c_.layers - 1, kept);
        if (b.hidden_rows > 0)
            worker.phase(b.hidden_rows, [&](int row) {
                rms_norm(kept.stream + (size_t)(b.logit_rows + row) * c_.hidden, m_.final_norm.data(), c_.norm_eps, c_.hidden,
                         b.hidden + (size_t)row * c_.hidden);
            });
        if (b.logit_rows == 0) return;
        const Rows sampled{b.logit_rows, kept.stream, nullptr};
        auto where = [&](const Place& at) { return b.logits + (size_t)at.row * c_.vocab + at.panel * kPanel; };
        auto put = [&](const Place& at, f32x16 v0, f32x16 v1) { store_logits(where(at), at.panel, v0, v1); };
        normed_linear(worker, m_.head, sampled, m_.final_norm, nullptr, 1, Finish{where, put, kNothing});
    }

    void self_attention(Worker& worker, int index) {
        const Layer& layer = m_.layers[index];
        const int unit = m_.head_panels(), width = unit * kPanel;
        float* heads = scratch_[worker.index()].results.data();  // [rows of a block, width], one head at a time
        auto where = [=](const Place& at) { return heads + (size_t)at.index * width + at.panel % unit * kPanel; };
        auto put = [=](const Place& at, f32x16 v0, f32x16 v1) {
            float* to = where(at);
            store(to, v0);
            store(to + 16, v1);
        };
        auto done = [=, this](int panel, int first, int count) {
            if (panel % unit != unit - 1) return;
            for (int i = 0; i < count; i++) take_head(index, first + i, panel / unit, heads + (size_t)i * width);
        };
        const Rows rows{schedule_.batch.tokens, stream(0), nullptr};
        normed_linear(worker, layer.qkv, rows, layer.attention_norm, &layer.output, unit, Finish{where, put, done});
        attention(worker, index);
    }

    // One head of a token as it leaves the fused projection: query heads, then the heads of K, then those of V.
    void take_head(int layer, int token, int head, float* values) {
        const Layer& l = m_.layers[layer];
        const int64_t slot = schedule_.batch.slot_mapping[token];
        if (head < c_.heads) {
            turn_head(token, l.query_norm, values);
            // Ready for attention: in units of log2.
            const f32x16 scale = splat(1.44269504f / std::sqrt((float)c_.head_dim));
            bf16* to = query(token) + head * c_.head_dim;
            for (int d = 0; d < c_.head_dim; d += kLanes) store_bf16(to + d, load(values + d) * scale);
        } else if (const int key = head - c_.heads; key < c_.kv_heads) {
            turn_head(token, l.key_norm, values);
            m_.cache.write_key(layer, slot, key, values);
        } else {
            m_.cache.write_value(layer, slot, key - c_.kv_heads, values);
            if (schedule_.clears[token]) m_.cache.clear_after(layer, slot, key - c_.kv_heads);
        }
    }

    // Norms and rotates a head in place.
    void turn_head(int token, const std::vector<float>& norm, float* values) {
        const int dim = c_.head_dim;
        if (!norm.empty()) rms_norm(values, norm.data(), c_.norm_eps, dim, values);
        rotate(values, rotation(token), rotation(token) + dim / 2, dim);
    }

    void mlp(Worker& worker, int index, const Rows& rows) {
        if (index + 1 < c_.layers) read_ahead(worker, index + 1);
        const Layer& layer = m_.layers[index];
        const Linear& next = index + 1 < c_.layers ? m_.layers[index + 1].qkv : m_.head;
        residual_linear(worker, layer.output, w_.activations(*rows.attention), true, rows, layer.gate_up);
        if (layer.gate_up.format == Format::kInt8) gate_int8(worker, layer, rows);
        else gate_bf16(worker, layer, rows);
        residual_linear(worker, layer.down, w_.inner_activations(), false, rows, next);
    }

    ReadAhead& later(const Worker& worker) { return scratch_[worker.index()].later; }

    // From here to the attention of `layer`, products fetch what this thread's decodes will read there.
    void read_ahead(Worker& worker, int layer) {
        const int window = m_.layers[layer].window;
        if (window && window < schedule_.longest) return;  // most of it is not read
        later(worker).start(schedule_.reads[worker.index()], (ptrdiff_t)(layer * m_.cache.layer_bytes()));
    }

    void gate_bf16(Worker& worker, const Layer& layer, const Rows& rows) {
        bf16* inner = (bf16*)w_.inner.data();
        auto where = [=, this](const Place& at) { return inner + (size_t)at.row * c_.inner + at.panel * kLanes; };
        auto put = [=](const Place& at, f32x16 gate, f32x16 up) { store_bf16(where(at), silu(gate) * up); };
        normed_linear(worker, layer.gate_up, rows, layer.mlp_norm, &layer.down, 1, Finish{where, put, kNothing});
    }

    // Likewise, rounded at once: a group of channels comes from as many panels as it has vectors.
    void gate_int8(Worker& worker, const Layer& layer, const Rows& rows) {
        constexpr int kUnit = kGroup / kLanes;
        const QuantizedRows inner = w_.quantized_inner.rows();
        float* group = scratch_[worker.index()].results.data();  // [rows of a block, kGroup]
        auto where = [=](const Place& at) { return group + (size_t)at.index * kGroup + at.panel % kUnit * kLanes; };
        auto put = [=](const Place& at, f32x16 gate, f32x16 up) { store(where(at), silu(gate) * up); };
        auto done = [=](int panel, int first, int count) {
            if (panel % kUnit != kUnit - 1) return;
            for (int i = 0; i < count; i++) quantize_group(group + (size_t)i * kGroup, inner.from(panel / kUnit, first + i));
        };
        normed_linear(worker, layer.gate_up, rows, layer.mlp_norm, &layer.down, kUnit, Finish{where, put, done});
    }

    void keep(int row, int token) {
        memcpy((float*)w_.kept_stream.data() + (size_t)row * c_.hidden, stream(token), c_.hidden * sizeof(float));
        memcpy((bf16*)w_.kept_attention.data() + (size_t)row * m_.query_dim(), attended(token), m_.query_dim() * sizeof(bf16));
    }

    // Token embedding, and the cosines and sines of its position.
    void embed(int token) {
        const Batch& b = schedule_.batch;
        const bf16* from = c_.embeddings + (size_t)b.token_ids[token] * c_.hidden;
        float* to = stream(token);
        for (int i = 0; i < c_.hidden; i += kLanes) store(to + i, load_bf16(from + i));
        float *cos = rotation(token), *sin = cos + c_.head_dim / 2;
        for (int i = 0; i < c_.head_dim / 2; i++) {
            const float angle = (float)b.positions[token] * m_.inverse_frequencies[i];
            cos[i] = std::cos(angle) * c_.rope_scale;
            sin[i] = std::sin(angle) * c_.rope_scale;
        }
    }

    // finish(norm(rows of the stream) times weights)
    template <class Finish>
    void normed_linear(Worker& worker, const Linear& linear, const Rows& rows, const std::vector<float>& norm,
                       const Linear* next, int unit, Finish&& finish) {
        auto norm_row = [&](int row, const Activations& to) {
            thread_local std::vector<float> normed;
            normed.resize(c_.hidden);
            rms_norm(rows.stream + (size_t)row * c_.hidden, norm.data(), c_.norm_eps, c_.hidden, normed.data());
            write_activations(normed.data(), c_.hidden, linear.format, to, row);
        };
        const Activations shared = w_.activations(w_.normed);
        const bool private_copy = rows.count <= kPrivateRows && linear.format != Format::kInt8;
        if (!private_copy) {
            worker.phase(rows.count, [&](int row) { norm_row(row, shared); }, Warmup(&linear, worker.index(), worker.threads()));
            linear_phase(worker, linear, rows.count, shared, next, unit, later(worker), finish);
            return;
        }
        // Inside the first task: only then is the stream sure to hold still.
        Activations own{scratch_[worker.index()].normed.data(), {}};
        bool ready = false;
        const Grid grid(linear, rows.count, worker.threads(), unit);
        auto task = [&](int index) {
            for (int row = 0; !ready && row < rows.count; row++) norm_row(row, own);
            ready = true;
            linear_task(grid, index, own, later(worker), finish);
        };
        worker.phase(grid.tasks(), task, Warmup(next, worker.index(), worker.threads()));
    }

    // rows of the stream += input times weights. `round`: in int8 the input still has to be rounded.
    void residual_linear(Worker& worker, const Linear& linear, const Activations& input, bool round, const Rows& rows,
                         const Linear& next) {
        if (round && linear.format == Format::kInt8)
            worker.phase(rows.count, [&](int row) { quantize_row(input, linear.k, row); });
        auto where = [=, this](const Place& at) { return rows.stream + (size_t)at.row * c_.hidden + at.panel * kPanel; };
        auto put = [=](const Place& at, f32x16 v0, f32x16 v1) {
            float* to = where(at);
            store(to, load(to) + v0);
            store(to + 16, load(to + 16) + v1);
        };
        linear_phase(worker, linear, rows.count, input, &next, 1, later(worker), Finish{where, put, kNothing});
    }

    void attention(Worker& worker, int layer) {
        later(worker).stop();
        Warmup warmup(&m_.layers[layer].output, worker.index(), worker.threads());
        const bool last = layer + 1 == c_.layers;
        worker.phase(
            (int)schedule_.tasks.size(),
            [&](int i) {
                const AttentionTask& task = schedule_.tasks[i];
                if (last && !task.wanted) return;
                if (task.decode) decode(layer, task);
                else prefill(layer, task, scratch_[worker.index()].prefill);
            },
            warmup);
        if (!schedule_.merges.empty())
            worker.phase((int)schedule_.merges.size(), [&](int i) { merge(schedule_.merges[i]); }, warmup);
    }

    void prefill(int layer, const AttentionTask& task, PrefillScratch& scratch) {
        const Batch& b = schedule_.batch;
        const int heads = c_.heads / c_.kv_heads, offset = task.head * heads * c_.head_dim;
        const int position = b.seq_lens[task.row] - b.query_starts[task.row + 1] + task.begin;
        prefill_attention(m_.cache, layer, task.head,
                          {b.block_tables + (size_t)task.row * b.max_blocks, position, task.end - task.begin, heads,
                           m_.layers[layer].window, query(task.begin) + offset, (size_t)m_.query_dim(),
                           attended(task.begin) + offset},
                          scratch);
    }

    void decode(int layer, const AttentionTask& task) {
        const Batch& b = schedule_.batch;
        const int token = b.query_starts[task.row], heads = c_.heads / c_.kv_heads, window = m_.layers[layer].window;
        Span span{b.block_tables + (size_t)task.row * b.max_blocks, task.begin, task.end};
        if (window) span.begin = std::max(span.begin, b.seq_lens[task.row] - window);
        Partial whole;
        for (int first = 0, piece = 0; first < heads; first += kMaxHeads, piece++) {
            const int count = std::min(kMaxHeads, heads - first), head = task.head * heads + first;
            Partial& part = task.part < 0 ? whole : partials_[task.part + piece];
            if (span.begin >= span.end) {  // wholly outside the window
                std::fill_n(part.weight, count, 0.0f);
                continue;
            }
            decode_attention(m_.cache, layer, task.head, count, query(token) + head * c_.head_dim, span, part);
            if (task.part < 0) write_attended(token, head, count, part);
        }
    }

    void write_attended(int token, int head, int count, const Partial& part) {
        for (int g = 0; g < count; g++) {
            bf16* to = attended(token) + (head + g) * c_.head_dim;
            for (int d = 0; d < c_.head_dim; d += kLanes) store_bf16(to + d, load(&part.sum[g][d]) * splat(1.0f / part.weight[g]));
        }
    }

    // Adds up the parts of a sequence, each relative to its own maximum.
    void merge(const Merge& merge) {
        const int heads = c_.heads / c_.kv_heads, pieces = head_pieces(c_);
        const int token = schedule_.batch.query_starts[merge.row];
        for (int piece = 0; piece < pieces; piece++) {
            const int first = piece * kMaxHeads, count = std::min(kMaxHeads, heads - first);
            Partial total;
            for (int g = 0; g < count; g++) {
                float most = -INFINITY, weight = 0;
                auto part = [&](int i) -> const Partial& { return partials_[merge.first + i * pieces + piece]; };
                for (int i = 0; i < merge.parts; i++)
                    if (part(i).weight[g] != 0) most = std::max(most, part(i).maximum[g]);
                for (int d = 0; d < c_.head_dim; d += kLanes) store(&total.sum[g][d], f32x16{});
                for (int i = 0; i < merge.parts; i++) {
                    if (part(i).weight[g] == 0) continue;
                    const float share = std::exp2(part(i).maximum[g] - most);
                    weight += part(i).weight[g] * share;
                    for (int d = 0; d < c_.head_dim; d += kLanes)
                        store(&total.sum[g][d], load(&total.sum[g][d]) + load(&part(i).sum[g][d]) * splat(share));
                }
                total.weight[g] = weight;
            }
            write_attended(token, merge.head * heads + first, count, total);
        }
    }

    void store_logits(float* to, int panel, f32x16 v0, f32x16 v1) const {
        const int left = c_.vocab - panel * kPanel;
        if (left >= kPanel) {
            store(to, v0);
            store(to + 16, v1);
            return;
        }
        memcpy(to, &v0, std::min(left, 16) * sizeof(float));
        if (left > 16) memcpy(to + 16, &v1, (left - 16) * sizeof(float));
    }

    float* stream(int token) const { return (float*)w_.stream.data() + (size_t)token * c_.hidden; }
    float* rotation(int token) const { return (float*)w_.rotation.data() + (size_t)token * c_.head_dim; }
    bf16* query(int token) const { return (bf16*)w_.query.data() + (size_t)token * m_.query_dim(); }
    bf16* attended(int token) const { return (bf16*)w_.attention.data() + (size_t)token * m_.query_dim(); }

    Model& m_;
    const Config& c_;
    Workspace& w_;
    Schedule schedule_;
    std::vector<Scratch> scratch_;
    std::vector<Partial> partials_;
};

}  // namespace pagewire
