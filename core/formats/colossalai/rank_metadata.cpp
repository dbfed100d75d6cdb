#include "formats/colossalai/rank_metadata.h"

#include <fmt/format.h>

#include "base/rule.h"
#include "base/text.h"
#include "base/units.h"

namespace shardscope::colossalai {

namespace {

class MetadataEvents final : public safetensors::JsonEvents {
  public:
    explicit MetadataEvents(RankMetadata& metadata) : out_(metadata) {}

    bool onKey(std::string& key) override {
        if (depth() == 1) {
            inMetadata_ = key == "metadata";
            if (inMetadata_ && seen_) return wrong("'metadata' twice");
            seen_ = seen_ || inMetadata_;
            if (!inMetadata_) skipValue();
            return true;
        }
        if (depth() == 2) {
            if (!out_.names.insert(key)) {
                return fail(damaged(fmt::format("it names '{}' twice", printable(key, kNameInMessage)))
                                .byRule(rule::metaDuplicate)
                                .at(position()));
            }
            out_.entries.emplace_back();
            name_ = std::move(key);
            has_ = 0;
            return true;
        }
        member_ = key == "offsets"        ? kOffsets
                  : key == "lengths"      ? kLengths
                  : key == "global_shape" ? kShape
                  : key == "file"         ? kFile
                  : key == "rank"         ? kRank
                                          : kUnknown;
        if (member_ == kUnknown) {
            skipValue();
            return true;
        }
        if (has_ & member_) return wrong(fmt::format("'{}' twice", key));
        has_ |= member_;
        return true;
    }

    bool onText(std::string& text) override {
        if (depth() != 3 || member_ != kFile) return wrong("a text where none belongs");
        const size_t known = files_.find(text);
        if (known != SIZE_MAX) {
            out_.entries.back().file = static_cast<uint32_t>(known);
            return true;
        }
        (void)files_.insert(text);
        out_.entries.back().file = static_cast<uint32_t>(out_.files.size());
        out_.files.push_back(std::move(text));
        return true;
    }

    bool onCount(uint64_t value) override {
        if (depth() == 3 && member_ == kRank) {
            out_.entries.back().rank = value;
            out_.entries.back().hasRank = true;
            return true;
        }
        if (depth() != 4) return wrong("a number where none belongs");
        Dims& dims = list();
        if (dims.size() >= kMaxRank) {
            return fail(
                makeError(ErrorCode::limit, fmt::format("more than {}", counted(kMaxRank, "dimension")))
                    .ofTensor(name_)
                    .at(position()));
        }
        if (value > static_cast<uint64_t>(kMaxDim)) return wrong(fmt::format("the size {}", value));
        dims.push_back(static_cast<int64_t>(value));
        return true;
    }

    bool onOther(std::string_view what) override {
        if (depth() == 3 && member_ == kRank && what == "null") return true;
        return wrong(fmt::format("{} where none belongs", what));
    }

    bool onOpen(bool object) override {
        if (depth() <= 2) return object || wrong("a list where an object belongs");
        if (depth() == 3 && !object && (member_ & (kOffsets | kLengths | kShape))) return true;
        return wrong(object ? "an object where none belongs" : "a list where none belongs");
    }

    bool onClose(bool) override {
        if (depth() != 2 || !inMetadata_) return true;
        PieceEntry& entry = out_.entries.back();
        for (const auto& [bit, what] : {std::pair{kOffsets, "offsets"},
                                        {kLengths, "lengths"},
                                        {kShape, "global_shape"},
                                        {kFile, "file"}}) {
            if (!(has_ & bit)) return wrong(fmt::format("no '{}'", what));
        }
        // A parameter without dimensions gets one length: the save computes it apart from the other two.
        if (entry.offsets.empty() && entry.globalShape.empty() && entry.lengths == Dims{1})
            entry.lengths.clear();
        if (entry.offsets.size() != entry.lengths.size() || entry.offsets.size() != entry.globalShape.size())
            return wrong("offsets, lengths and global_shape of different lengths");
        return true;
    }

    bool complete() const { return seen_; }

  private:
    enum Member : uint8_t { kUnknown = 0, kOffsets = 1, kLengths = 2, kShape = 4, kFile = 8, kRank = 16 };
    Dims& list() {
        PieceEntry& entry = out_.entries.back();
        return member_ == kOffsets ? entry.offsets : member_ == kLengths ? entry.lengths : entry.globalShape;
    }
    bool wrong(std::string_view what) {
        Error error = damaged(fmt::format("the metadata of this rank has {}", what), position());
        if (!name_.empty()) return fail(std::move(error).ofTensor(printable(name_, kNameInMessage)));
        return fail(std::move(error));
    }

    RankMetadata& out_;
    safetensors::NameSet files_;
    std::string name_;
    bool inMetadata_ = false, seen_ = false;
    Member member_ = kUnknown;
    uint8_t has_ = 0;
};

}  // namespace

Result<RankMetadata> parseRankMetadata(std::string_view json) {
    RankMetadata metadata;
    MetadataEvents events(metadata);
    const Status parsed = events.parse(json, 0, "the metadata of this rank");
    if (!parsed.ok()) {
        Error error = parsed.error();
        // What ends in the middle was truncated.
        const bool atEnd = error.location.offset && *error.location.offset >= json.size();
        if (error.code == ErrorCode::damaged && atEnd && error.location.rule.empty())
            return std::move(error)
                .byRule(rule::fileTruncated)
                .withHint("the file is truncated; take it from another copy");
        return error;
    }
    if (!events.complete()) return damaged("the file has no 'metadata': it describes no rank", 0);
    return metadata;
}

}  // namespace shardscope::colossalai
