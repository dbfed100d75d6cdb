// Metadata of many pieces, with the opcodes of CPython's own pickler: memo and frames as it makes them.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "model/region.h"

namespace shardscope::test {

struct LargeMetadata {
    int protocol = 4;
    bool flex = true;       // fields of 3.3, else of 3.0
    bool dtypes = true;     // else of 2.6
    bool shared = false;    // a piece and its entry have one tuple, as in a save by one process
    bool replicas = false;  // not every entry is that of replica 0
    unsigned ranks = 64, tensors = 40;
};

class MetadataPickler {
  public:
    explicit MetadataPickler(LargeMetadata spec) : spec_(spec), random_(spec.ranks) {}

    std::string run() {
        const std::string module = spec_.flex ? "paddle.distributed.flex_checkpoint.dcp.metadata"
                                              : "paddle.distributed.checkpoint.metadata";
        begin(module, "Metadata");
        text("state_dict_metadata");
        op('}');
        memoize();
        op('(');
        for (unsigned t = 0; t < spec_.tensors; ++t) {
            key(t);
            op(']');
            memoize();
            op('(');
            for (unsigned r = 0; r < spec_.ranks; ++r)
                shard(module, t, r);
            op('e');
        }
        op('u');
        text("storage_metadata");
        op('}');
        memoize();
        op('(');
        for (unsigned r = 0; r < spec_.ranks; ++r) {
            texts_.clear();  // each rank's texts are its own
            for (unsigned t = 0; t < spec_.tensors; ++t) {
                index(module, t, r);
                text(std::to_string(r) + "_0.distcp");
            }
        }
        op('u');
        text("flat_mapping");
        op('}');
        memoize();
        op('(');
        texts_.clear();
        for (unsigned t = 0; t < spec_.tensors; ++t) {
            key(t);
            text("model");
            text("w" + std::to_string(t));
            op('\x86');
            memoize();
        }
        op('u');
        op('u');
        op('b');
        op('.');
        return frames();
    }

  private:
    void op(char code) { body_ += code; }
    void little(uint64_t value, unsigned bytes) {
        for (unsigned i = 0; i < bytes; ++i)
            body_ += static_cast<char>(value >> 8 * i);
    }
    uint32_t memoize() {
        if (spec_.protocol >= 4) {
            op('\x94');
        } else if (memo_ < 256) {
            op('q');
            little(memo_, 1);
        } else {
            op('r');
            little(memo_, 4);
        }
        return memo_++;
    }
    void get(uint32_t index) {
        op(index < 256 ? 'h' : 'j');
        little(index, index < 256 ? 1 : 4);
    }
    void spelt(const std::string& text) {
        if (spec_.protocol >= 4) {
            op('\x8c');
            little(text.size(), 1);
        } else {
            op('X');
            little(text.size(), 4);
        }
        body_ += text;
    }
    void text(const std::string& text) {
        auto [it, fresh] = texts_.try_emplace(text, 0);
        if (!fresh) return get(it->second);
        spelt(text);
        it->second = memoize();
    }
    void word(const std::string& text) {
        auto [it, fresh] = words_.try_emplace(text, 0);
        if (!fresh) return get(it->second);
        spelt(text);
        it->second = memoize();
    }
    void key(unsigned t) { text("model.w" + std::to_string(t)); }
    void begin(const std::string& module, const std::string& name) {
        auto [it, fresh] = words_.try_emplace("class " + name, 0);
        if (!fresh) {
            get(it->second);
        } else {
            if (spec_.protocol >= 4) {
                word(module);
                word(name);
                op('\x93');
            } else {
                body_ += "c" + module + "\n" + name + "\n";
            }
            it->second = memoize();
        }
        op(')');
        op('\x81');
        memoize();
        op('}');
        memoize();
        op('(');
    }
    void integer(int64_t value) {
        if (value >= 0 && value < 256) {
            op('K');
            little(static_cast<uint64_t>(value), 1);
        } else if (value >= 0 && value < 65536) {
            op('M');
            little(static_cast<uint64_t>(value), 2);
        } else if (value == static_cast<int32_t>(value)) {
            op('J');
            little(static_cast<uint64_t>(value), 4);
        } else {
            op('\x8a');
            little(6, 1);
            little(static_cast<uint64_t>(value), 6);
        }
    }
    void tuple(const Dims& dims) {
        if (dims.empty()) return op(')');
        if (dims.size() > 3) op('(');
        for (const int64_t value : dims)
            integer(value);
        op(dims.size() > 3 ? 't' : static_cast<char>(0x84 + dims.size()));
        last_ = memoize();
    }
    // Some tensors are scalars, some have five dimensions, some are flattened, some pieces are empty.
    unsigned rankOf(unsigned t) const { return std::array{2U, 2U, 1U, 5U, 2U, 0U, 3U}[t % 7]; }
    bool isFlat(unsigned t) const { return spec_.flex && t % 5 == 3; }
    Dims offset(unsigned t, unsigned r) const {
        Dims out(rankOf(t), 0);
        if (!out.empty() && !isFlat(t)) out[0] = int64_t{r} * (t % 3 == 0 ? 100000 : 3);
        return out;
    }
    Dims shape(unsigned t, unsigned r) const {
        Dims out(rankOf(t), 7);
        if (!out.empty()) out[0] = t % 11 == 4 && r + 1 == spec_.ranks ? -1 : 3;
        return out;
    }
    void range(unsigned t, unsigned r) {
        word("is_flattened");
        op(isFlat(t) ? '\x88' : '\x89');
        word("flattened_range");
        if (isFlat(t))
            tuple({int64_t{r}, int64_t{r} + 1});
        else
            op('N');
    }
    void shard(const std::string& module, unsigned t, unsigned r) {
        begin(module, "LocalTensorMetadata");
        word("global_offset");
        tuple(offset(t, r));
        if (rankOf(t) > 0) offsets_[{t, r}] = last_;
        word("local_shape");
        tuple(shape(t, r));
        if (spec_.dtypes) {
            word("dtype");
            text(t % 2 == 0 ? "float32" : "bfloat16");
        }
        if (spec_.flex) {
            word("global_shape");
            tuple(Dims(rankOf(t), 3000));
            range(t, r);
        }
        op('u');
        op('b');
    }
    void index(const std::string& module, unsigned t, unsigned r) {
        begin(module, "LocalTensorIndex");
        word("tensor_key");
        key(t);
        word("global_offset");
        if (spec_.shared && rankOf(t) > 0)
            get(offsets_[{t, r}]);
        else
            tuple(offset(t, r));
        if (spec_.flex) {
            range(t, r);
            word("replica_id");
            integer(spec_.replicas ? static_cast<int64_t>(random_() % 3) : 0);
            word("local_shape");
            tuple(shape(t, r));
        }
        op('u');
        op('b');
    }
    // As the pickler cuts its frames: behind the opcode that fills one. Any cut between opcodes is a valid
    // one, and an opcode begins behind every TUPLE2 with MEMOIZE.
    std::string frames() const {
        std::string out{'\x80', static_cast<char>(spec_.protocol)};
        if (spec_.protocol < 4) return out + body_;
        size_t at = 0;
        while (at < body_.size()) {
            size_t end = body_.size();
            if (end - at > 65536) {
                const size_t cut = body_.find("}\x94(", at + 60000);
                if (cut != std::string::npos) end = cut;
            }
            out += '\x95';
            for (unsigned i = 0; i < 8; ++i)
                out += static_cast<char>((end - at) >> 8 * i);
            out += body_.substr(at, end - at);
            at = end;
        }
        return out;
    }

    LargeMetadata spec_;
    std::mt19937 random_;
    std::string body_;
    uint32_t memo_ = 0, last_ = 0;
    std::map<std::string, uint32_t> texts_, words_;
    std::map<std::pair<unsigned, unsigned>, uint32_t> offsets_;
};

}  // namespace shardscope::test
