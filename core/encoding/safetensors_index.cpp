#include "encoding/safetensors_index.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/rule.h"
#include "base/text.h"
#include "storage/file_system.h"

namespace shardscope::safetensors {

namespace {

class IndexEvents final : public JsonEvents {
  public:
    explicit IndexEvents(Index& index) : index_(index) {}

    bool onKey(std::string& key) override {
        if (depth() == 1) {
            section_ = key == "metadata" ? kMetadata : key == "weight_map" ? kMap : kOther;
            if (section_ == kOther) {
                skipValue();
            } else if (seen_ & section_) {
                return fail(damaged(fmt::format("'{}' occurs twice", key), position()));
            }
            seen_ |= section_;
            return true;
        }
        if (section_ == kMetadata) {
            key_ = std::move(key);
            return true;
        }
        if (!index_.names.insert(key)) {
            return fail(damaged(fmt::format("the index names '{}' twice", printable(key, kNameInMessage)))
                            .byRule(rule::metaDuplicate)
                            .at(position()));
        }
        index_.fileOf.push_back(UINT32_MAX);
        return true;
    }

    bool onText(std::string& text) override {
        if (depth() != 2) return wrong("a text");
        if (section_ == kMetadata) {
            index_.texts.emplace_back(std::move(key_), std::move(text));
            return true;
        }
        const size_t known = fileNames_.find(text);
        if (known != SIZE_MAX) {
            index_.fileOf.back() = static_cast<uint32_t>(known);
            return true;
        }
        // Files are beside the index: a name that could lead elsewhere is refused, not cut to its last part.
        const std::string_view name = index_.names[index_.names.size() - 1];
        const auto leaves = [&] {
            return makeError(ErrorCode::unsafe,
                             fmt::format("the index places '{}' in '{}', which is not a plain file name",
                                         printable(name, kNameInMessage), printable(text, kNameInMessage)))
                .byRule(rule::securityPath)
                .at(position());
        };
        if (!checkRelativeName(text).ok() || text.find_first_of("/\\") != std::string::npos)
            return fail(leaves());
        (void)fileNames_.insert(text);
        index_.fileOf.back() = static_cast<uint32_t>(index_.files.size());
        index_.files.push_back(std::move(text));
        return true;
    }

    bool onCount(uint64_t value) override {
        if (depth() == 2 && section_ == kMetadata) {
            if (key_ == "total_size") index_.totalSize = value;
            return true;
        }
        return wrong("a number");
    }
    bool onOther(std::string_view what) override {
        if (depth() == 2 && section_ == kMetadata) return true;
        if (depth() == 1 && section_ == kMetadata && what == "null") return true;
        return wrong(what);
    }
    bool onOpen(bool object) override {
        if (depth() == 0) return object || wrong("a list");
        if (depth() == 1) return object || wrong("a list");
        // Lists and objects inside "metadata" are nobody's business here.
        if (section_ == kMetadata) return true;
        return wrong(object ? "an object" : "a list");
    }
    bool onClose(bool) override { return true; }

    bool complete() const { return seen_ & kMap; }

  private:
    enum Section : uint8_t { kOther = 0, kMetadata = 1, kMap = 2 };
    bool wrong(std::string_view what) {
        if (section_ == kMetadata && depth() > 2) return true;
        return fail(damaged(fmt::format("the index holds {} where none belongs", what), position()));
    }
    Index& index_;
    NameSet fileNames_;
    Section section_ = kOther;
    uint8_t seen_ = 0;
    std::string key_;
};

class ShardingEvents final : public JsonEvents {
  public:
    explicit ShardingEvents(ShardingInfo& info) : info_(info) {}

    bool onKey(std::string& key) override {
        if (depth() == 1) {
            if (!info_.names.insert(key)) {
                return fail(
                    damaged(fmt::format("the sharding info names '{}' twice", printable(key, kNameInMessage)))
                        .byRule(rule::metaDuplicate));
            }
            info_.entries.emplace_back();
            return true;
        }
        member_ = key == "saved_offsets"  ? kOffsets
                  : key == "global_shape" ? kShape
                  : key == "logical_fqn"  ? kName
                                          : kOther;
        if (member_ == kOther) skipValue();
        if (member_ == kOffsets) hasOffsets_ = true;
        return true;
    }
    bool onText(std::string& text) override {
        if (depth() != 2 || member_ != kName) return wrong();
        info_.entries.back().logicalName = std::move(text);
        return true;
    }
    bool onCount(uint64_t value) override {
        if (depth() != 3 || value > static_cast<uint64_t>(kMaxDim)) return wrong();
        Dims& dims =
            member_ == kShape ? *info_.entries.back().globalShape : info_.entries.back().savedOffsets;
        if (dims.size() >= kMaxRank) return wrong();
        dims.push_back(static_cast<int64_t>(value));
        return true;
    }
    bool onOther(std::string_view what) override {
        return depth() == 2 && what == "null" && member_ != kOffsets ? true : wrong();
    }
    bool onOpen(bool object) override {
        if (depth() == 0) return object || wrong();
        if (depth() == 1) {
            hasOffsets_ = false;
            return object || wrong();
        }
        if (depth() != 2 || object || (member_ != kOffsets && member_ != kShape)) return wrong();
        if (member_ == kShape) info_.entries.back().globalShape.emplace();
        if (member_ == kOffsets) info_.entries.back().savedOffsets.clear();
        return true;
    }
    bool onClose(bool) override { return depth() != 1 || hasOffsets_ || wrong(); }

  private:
    enum Member : uint8_t { kOther, kOffsets, kShape, kName };
    bool wrong() {
        return fail(damaged(fmt::format("{} is not of the form that torch writes", "DCP_SHARDING_INFO"))
                        .byRule(rule::metaInconsistent));
    }
    ShardingInfo& info_;
    Member member_ = kOther;
    bool hasOffsets_ = false;
};

}  // namespace

Result<Index> parseIndex(std::string_view json) {
    Index index;
    IndexEvents events(index);
    SHARDSCOPE_TRY(events.parse(json, 0, "the index"));
    if (!events.complete()) return damaged("the index has no 'weight_map'", 0);
    if (std::find(index.fileOf.begin(), index.fileOf.end(), UINT32_MAX) != index.fileOf.end()) {
        return damaged("the index names a tensor without a file", 0);
    }
    return index;
}

Result<ShardingInfo> parseShardingInfo(std::string_view json) {
    ShardingInfo info;
    ShardingEvents events(info);
    SHARDSCOPE_TRY(events.parse(json, 0, "DCP_SHARDING_INFO"));
    return info;
}

}  // namespace shardscope::safetensors
