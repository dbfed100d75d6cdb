// What tests of recipes share: a small Llama under the names of Hugging Face, arrays that are put together by
// definition, and the program with --map.
#pragma once

#include <QTemporaryDir>
#include <functional>
#include <string>
#include <vector>

#include "cli/run_shardscope.h"
#include "cli/state_file.h"
#include "engine/engine.h"
#include "engine/recipe.h"

namespace shardscope::test {

// Row r of the result is row of(r) of the argument.
inline Array rows(const Array& in, int64_t count, const std::function<int64_t(int64_t)>& of) {
    const int64_t width = static_cast<int64_t>(in.values.size()) / in.shape[0];
    Array out{in.shape, {}};
    out.shape[0] = count;
    for (int64_t r = 0; r < count; ++r) {
        const auto begin = in.values.begin() + static_cast<ptrdiff_t>(of(r) * width);
        out.values.insert(out.values.end(), begin, begin + static_cast<ptrdiff_t>(width));
    }
    return out;
}

inline Array transposed(const Array& in) {
    Array out{{in.shape[1], in.shape[0]}, {}};
    for (int64_t i = 0; i < in.shape[1]; ++i) {
        for (int64_t j = 0; j < in.shape[0]; ++j)
            out.values.push_back(in.values[static_cast<size_t>(j * in.shape[1] + i)]);
    }
    return out;
}

inline Array stacked(const std::vector<Array>& parts) {
    Array out = parts[0];
    for (size_t i = 1; i < parts.size(); ++i) {
        out.shape[0] += parts[i].shape[0];
        out.values.insert(out.values.end(), parts[i].values.begin(), parts[i].values.end());
    }
    return out;
}

// 8 query heads, 2 key-value heads of 4 rows.
inline constexpr int64_t kHeads = 8, kKvHeads = 2, kHeadDim = 4, kHidden = 6, kFfn = 10;

inline State hfLlama() {
    State state;
    for (int layer = 0; layer < 2; ++layer) {
        const std::string p = "model.layers." + std::to_string(layer) + ".";
        const float base = static_cast<float>(layer) * 10'000;
        state[p + "self_attn.q_proj.weight"] = numbers({kHeads * kHeadDim, kHidden}, base);
        state[p + "self_attn.k_proj.weight"] = numbers({kKvHeads * kHeadDim, kHidden}, base + 1000);
        state[p + "self_attn.v_proj.weight"] = numbers({kKvHeads * kHeadDim, kHidden}, base + 2000);
        state[p + "self_attn.o_proj.weight"] = numbers({kHidden, kHeads * kHeadDim}, base + 3000);
        state[p + "mlp.gate_proj.weight"] = numbers({kFfn, kHidden}, base + 4000);
        state[p + "mlp.up_proj.weight"] = numbers({kFfn, kHidden}, base + 5000);
        state[p + "mlp.down_proj.weight"] = numbers({kHidden, kFfn}, base + 6000);
        state[p + "input_layernorm.weight"] = numbers({kHidden}, base + 7000);
        state[p + "post_attention_layernorm.weight"] = numbers({kHidden}, base + 8000);
    }
    state["model.embed_tokens.weight"] = numbers({12, kHidden}, 50'000);
    state["model.norm.weight"] = numbers({kHidden}, 51'000);
    state["lm_head.weight"] = numbers({12, kHidden}, 52'000);
    return state;
}

inline constexpr const char* kConfig =
    R"({"num_attention_heads": 8, "num_key_value_heads": 2, "torch_dtype": "float32"})";

// The same with what makes it a model of transformers.
inline constexpr const char* kModel =
    R"({"model_type": "llama", "num_attention_heads": 8, "num_key_value_heads": 2, "num_hidden_layers": 2,
        "vocab_size": 12})";

inline State prefixed(const State& state, const std::string& prefix) {
    State out;
    for (const auto& [name, values] : state)
        out[prefix + name] = values;
    return out;
}

class RecipeRunner {
  protected:
    QString fresh() { return dir_.filePath(QString::number(next_++)); }

    // Runs a recipe over a state; the source is beside a config.json when `config` is given.
    State mapped(const State& state, const QString& map, const QStringList& more = {},
                 const char* config = nullptr) {
        const QString from = fresh(), to = fresh();
        writeState(from.toStdString() + "/model.safetensors", state);
        if (config) writeFile(from.toStdString() + "/config.json", config);
        const Outcome done =
            runShardscope(QStringList{"convert", from, to, "--to", "safetensors", "--map", map} + more);
        if (done.exitCode != 0) qWarning("%s", done.err.c_str());
        return done.exitCode == 0 ? readState(to.toStdString()) : State();
    }

    QString recipe(const std::string& steps, const std::string& more = {}) {
        const QString path = fresh() + ".json";
        writeFile(path.toStdString(), "{\"steps\": [" + steps + "]" + more + "}");
        return path;
    }

    // The message of a recipe that does not fit.
    std::string refused(const State& state, const QString& map, const QStringList& more = {}) {
        const QString from = fresh();
        writeState(from.toStdString() + "/model.safetensors", state);
        const Outcome done =
            runShardscope(QStringList{"plan", from, fresh(), "--to", "safetensors", "--map", map} + more);
        return done.exitCode == 2 ? done.err : "exit code " + std::to_string(done.exitCode) + ": " + done.err;
    }

  private:
    QTemporaryDir dir_;
    int next_ = 0;
};

}  // namespace shardscope::test
