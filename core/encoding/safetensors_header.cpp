#include "encoding/safetensors_header.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include <fmt/format.h>

#include "base/checked.h"
#include "base/rule.h"
#include "base/text.h"
#include "base/units.h"

namespace shardscope::safetensors {

namespace {

struct StoredDType {
    std::string_view name;
    DType dtype;
};

// Names of safetensors 0.8.
constexpr std::array<StoredDType, 22> kStoredDTypes{{
    {"BOOL", DType::boolean},
    {"F4", DType::float4E2M1FNx2},
    {"F6_E2M3", DType::float6E2M3},
    {"F6_E3M2", DType::float6E3M2},
    {"U8", DType::uint8},
    {"I8", DType::int8},
    {"F8_E5M2", DType::float8E5M2},
    {"F8_E4M3", DType::float8E4M3FN},
    {"F8_E8M0", DType::float8E8M0FNU},
    {"F8_E4M3FNUZ", DType::float8E4M3FNUZ},
    {"F8_E5M2FNUZ", DType::float8E5M2FNUZ},
    {"I16", DType::int16},
    {"U16", DType::uint16},
    {"F16", DType::float16},
    {"BF16", DType::bfloat16},
    {"I32", DType::int32},
    {"U32", DType::uint32},
    {"F32", DType::float32},
    {"C64", DType::complex64},
    {"F64", DType::float64},
    {"I64", DType::int64},
    {"U64", DType::uint64},
}};

// {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ..., "__metadata__": {"key": "text"}}
class HeaderEvents final : public JsonEvents {
  public:
    explicit HeaderEvents(Header& header) : header_(header) {}

    bool onKey(std::string& key) override {
        if (depth() == 1) {
            name_ = std::move(key);
            inMetadata_ = name_ == kMetadataName;
            if (inMetadata_ ? hasMetadata_ : !header_.names.insert(name_)) {
                return fail(damaged(fmt::format("the name '{}' occurs twice in the header",
                                                printable(name_, kNameInMessage)))
                                .byRule(rule::metaDuplicate)
                                .at(position()));
            }
            if (inMetadata_) {
                hasMetadata_ = true;
            } else {
                header_.tensors.emplace_back();
                header_.tensors.back().firstDim = header_.dims.size();
                has_ = 0;
            }
            return true;
        }
        if (inMetadata_) {
            if (!metadataKeys_.insert(key)) {
                return fail(damaged(fmt::format("the key '{}' occurs twice in __metadata__",
                                                printable(key, kNameInMessage)))
                                .byRule(rule::metaDuplicate)
                                .at(position()));
            }
            header_.metadata.emplace_back(std::move(key), std::string());
            return true;
        }
        member_ = key == "dtype"          ? kDType
                  : key == "shape"        ? kShape
                  : key == "data_offsets" ? kOffsets
                                          : kUnknown;
        if (member_ == kUnknown) {
            skipValue();  // the reference ignores members that it does not know
            return true;
        }
        if (has_ & member_) return fail(bad(fmt::format("'{}' occurs twice", key)));
        has_ |= member_;
        return true;
    }

    bool onText(std::string& text) override {
        if (inMetadata_ && depth() == 2) {
            header_.metadata.back().second = std::move(text);
            return true;
        }
        if (depth() == 2 && member_ == kDType) {
            const auto it = std::find_if(kStoredDTypes.begin(), kStoredDTypes.end(),
                                         [&](const StoredDType& d) { return d.name == text; });
            if (it == kStoredDTypes.end()) {
                return fail(
                    unsupported(fmt::format("the dtype '{}' is not known", printable(text, kNameInMessage)))
                        .ofTensor(name_)
                        .at(position()));
            }
            header_.tensors.back().dtype = it->dtype;
            return true;
        }
        return fail(bad("a text where none belongs"));
    }

    bool onCount(uint64_t value) override {
        if (depth() == 3 && member_ == kShape) {
            HeaderTensor& tensor = header_.tensors.back();
            if (tensor.rank >= kMaxRank) {
                return fail(
                    makeError(ErrorCode::limit, fmt::format("more than {}", counted(kMaxRank, "dimension")))
                        .ofTensor(name_)
                        .at(position()));
            }
            if (value > static_cast<uint64_t>(INT64_MAX))
                return fail(bad(fmt::format("the size {} in 'shape' is impossible", value)));
            ++tensor.rank;
            header_.dims.push_back(static_cast<int64_t>(value));
            return true;
        }
        if (depth() == 3 && member_ == kOffsets) {
            if (offsets_ == 2) return fail(bad("more than two 'data_offsets'"));
            (offsets_ == 0 ? header_.tensors.back().begin : header_.tensors.back().end) = value;
            ++offsets_;
            return true;
        }
        return fail(bad("a number where none belongs"));
    }

    bool onOther(std::string_view what) override {
        if (depth() == 1 && inMetadata_ && what == "null") return true;
        return fail(bad(fmt::format("{} where {} belongs", what,
                                    depth() == 3  ? "a whole number from 0"
                                    : inMetadata_ ? "a text"
                                                  : "something else")));
    }

    bool onOpen(bool object) override {
        if (depth() == 0)
            return object || fail(damaged("the header is a JSON list, expected an object", position()));
        if (depth() == 1) return object || fail(bad("a list where an object belongs"));
        if (depth() == 2 && !inMetadata_ && !object && (member_ == kShape || member_ == kOffsets)) {
            offsets_ = 0;
            return true;
        }
        return fail(bad(object ? "an object where none belongs" : "a list where none belongs"));
    }

    bool onClose(bool) override {
        if (depth() == 2 && member_ == kOffsets && offsets_ != 2)
            return fail(bad("fewer than two 'data_offsets'"));
        if (depth() == 1 && !inMetadata_ && has_ != (kDType | kShape | kOffsets)) {
            return fail(bad(fmt::format("'{}' is absent", !(has_ & kDType)   ? "dtype"
                                                          : !(has_ & kShape) ? "shape"
                                                                             : "data_offsets")));
        }
        return true;
    }

  private:
    enum Member : uint8_t { kUnknown = 0, kDType = 1, kShape = 2, kOffsets = 4 };

    Error bad(std::string_view what) {
        if (depth() == 0) return damaged("the header is not a JSON object", position());
        if (inMetadata_)
            return damaged(fmt::format("__metadata__ holds {}; only texts are allowed", what), position());
        return damaged(fmt::format("its header entry is wrong: {}", what)).ofTensor(name_).at(position());
    }

    Header& header_;
    std::string name_;
    NameSet metadataKeys_;
    bool inMetadata_ = false, hasMetadata_ = false;
    Member member_ = kUnknown;
    uint8_t has_ = 0;
    int offsets_ = 0;
};

// Rules of the reference reader: sorted by (begin, end) the tensors follow each other from 0 without hole or
// overlap, and each is as long as dtype and shape say.
Status checkTensors(Header& header) {
    const uint64_t dataSize = header.fileSize - header.dataStart;
    std::vector<uint32_t> order(header.tensors.size());
    std::iota(order.begin(), order.end(), 0U);
    const auto before = [&](uint32_t a, uint32_t b) {
        const HeaderTensor& x = header.tensors[a];
        const HeaderTensor& y = header.tensors[b];
        return x.begin != y.begin ? x.begin < y.begin : x.end < y.end;
    };
    if (!std::is_sorted(order.begin(), order.end(), before)) std::sort(order.begin(), order.end(), before);

    uint64_t cursor = 0;
    std::string_view previous;
    for (uint32_t index : order) {
        HeaderTensor& tensor = header.tensors[index];
        const std::string_view name = header.names[index];
        const auto wrong = [&](std::string message, std::string_view rule) {
            uint64_t at = 0;
            Error error = damaged(std::move(message)).ofTensor(name).byRule(rule);
            if (checkedAdd(header.dataStart, tensor.begin, at)) error.location.offset = at;
            return error;
        };
        if (tensor.end < tensor.begin) {
            return wrong(fmt::format("its data ends at byte {}, before it begins at byte {}",
                                     countText(tensor.end), countText(tensor.begin)),
                         rule::metaInconsistent);
        }
        int64_t elements = 0;
        if (!checkedProduct(header.shape(index), elements)) {
            return wrong(
                fmt::format("the number of elements of shape {} overflows", formatDims(header.shape(index))),
                rule::metaInconsistent);
        }
        // F4 counts values, two of which are one element (and one byte) for torch.
        const unsigned bits = tensor.dtype == DType::float4E2M1FNx2 ? 4 : dtypeBits(tensor.dtype);
        uint64_t totalBits = 0;
        if (!checkedMul<uint64_t>(static_cast<uint64_t>(elements), bits, totalBits)) {
            return wrong(fmt::format("the size of shape {} overflows", formatDims(header.shape(index))),
                         rule::metaInconsistent);
        }
        if (totalBits % 8 != 0) {
            return wrong(fmt::format("it does not fill whole bytes: {} of {}", counted(elements, "element"),
                                     counted(bits, "bit")),
                         rule::metaInconsistent);
        }
        if (tensor.end - tensor.begin != totalBits / 8) {
            return wrong(fmt::format("shape {} of {} takes {}, its data_offsets give it {}",
                                     formatDims(header.shape(index)), storedDTypeName(tensor.dtype),
                                     counted(totalBits / 8, "byte"), countText(tensor.end - tensor.begin)),
                         rule::metaInconsistent);
        }
        if (tensor.begin < cursor) {
            return wrong(
                fmt::format("its data at byte {} overlaps that of '{}', which ends at byte {}",
                            countText(tensor.begin), printable(previous, kNameInMessage), countText(cursor)),
                rule::coverageOverlap);
        }
        if (tensor.begin > cursor) {
            return wrong(fmt::format("no tensor has the {} before its data at byte {}",
                                     counted(tensor.begin - cursor, "byte"), countText(tensor.begin)),
                         rule::metaInconsistent);
        }
        cursor = tensor.end;
        previous = name;
        if (tensor.dtype == DType::float4E2M1FNx2) {
            if (tensor.rank == 0 || header.dims[tensor.firstDim + tensor.rank - 1] % 2 != 0) {
                return unsupported(fmt::format("F4 with an odd last dimension in shape {}",
                                               formatDims(header.shape(index))))
                    .ofTensor(name);
            }
            header.dims[tensor.firstDim + tensor.rank - 1] /= 2;
        }
    }
    if (!checkedAdd(header.dataStart, cursor, header.dataEnd)) return damaged("the declared size overflows");
    if (cursor < dataSize) {
        return damaged(fmt::format("no tensor has the {} at its end: the header declares {}, the file has {}",
                                   counted(dataSize - cursor, "byte"), counted(header.dataEnd, "byte"),
                                   countText(header.fileSize)))
            .at(header.dataEnd)
            .byRule(rule::metaInconsistent);
    }
    return {};
}

}  // namespace

const std::string* Header::metadataValue(std::string_view key) const {
    for (const auto& [name, value] : metadata) {
        if (name == key) return &value;
    }
    return nullptr;
}

std::string_view storedDTypeName(DType dtype) {
    for (const StoredDType& d : kStoredDTypes) {
        if (d.dtype == dtype) return d.name;
    }
    return {};
}

std::string looksLike(std::string_view head) {
    if (head.starts_with("version https://git-lfs")) return "a git-lfs pointer";
    if (head.starts_with("<!DOCTYPE") || head.starts_with("<!doctype") || head.starts_with("<html") ||
        head.starts_with("<HTML"))
        return "an HTML page";
    if (head.starts_with("\x1f\x8b")) return "gzip-compressed data";
    if (head.starts_with("\x28\xb5\x2f\xfd")) return "zstd-compressed data";
    if (head.starts_with("PK\x03\x04")) return "a zip archive (perhaps a torch.save file)";
    if (head.starts_with("GGUF")) return "a GGUF file";
    if (head.starts_with("{\"")) return "JSON text without the length in front";
    if (!head.empty() && std::all_of(head.begin(), head.end(), [](char c) { return c == 0; }))
        return "a file of zero bytes";
    return {};
}

Result<Header> parseHeader(std::string_view json, uint64_t fileSize) {
    Header header;
    header.fileSize = fileSize;
    header.dataStart = 8 + json.size();
    header.leadingSpace = !json.empty() && json.front() != '{';
    HeaderEvents events(header);
    SHARDSCOPE_TRY(events.parse(json, 8, "the header"));
    SHARDSCOPE_TRY(checkTensors(header));
    return header;
}

Result<Header> readHeader(const ReadFile& file, uint64_t maxHeader) {
    std::string head(std::min<uint64_t>(file.size(), 64), '\0');
    SHARDSCOPE_TRY(file.readAt(0, std::as_writable_bytes(std::span(head))));
    const auto notThis = [&](Error error) {
        const std::string what = looksLike(head);
        if (!what.empty()) {
            error.message += fmt::format("; this looks like {}", what);
            error.hint = what == "a git-lfs pointer"
                             ? "the file itself was never downloaded: run 'git lfs pull'"
                             : "the file is not what its name says; fetch it again";
        } else if (error.hint.empty()) {
            error.hint = "the file is damaged or no safetensors file";
        }
        return std::move(error).inFile(file.path());
    };
    if (head.size() < 8) {
        return notThis(damaged(head.empty()
                                   ? std::string("the file is empty")
                                   : fmt::format("expected at least 8 bytes, the file has {}", head.size()),
                               0));
    }
    uint64_t length = 0;
    for (int i = 7; i >= 0; --i)
        length = length << 8 | static_cast<unsigned char>(head[static_cast<size_t>(i)]);
    if (length > file.size() - 8 && (length > maxHeader || !looksLike(head).empty())) {
        return notThis(damaged(fmt::format("its first 8 bytes give a header of {}, the file has {}",
                                           counted(length, "byte"), countText(file.size())),
                               0));
    }
    if (length > maxHeader) {
        return makeError(ErrorCode::limit, fmt::format("a header of {} is longer than the {} that are read",
                                                       counted(length, "byte"), countText(maxHeader)))
            .inFile(file.path())
            .at(0);
    }
    if (length > file.size() - 8) {
        return damaged(fmt::format("the header ends at byte {}, the file has {}", countText(length + 8),
                                   countText(file.size())),
                       0)
            .inFile(file.path())
            .byRule(rule::fileTruncated)
            .withHint("the file is truncated; fetch it again");
    }
    std::string json(length, '\0');
    SHARDSCOPE_TRY(file.readAt(8, std::as_writable_bytes(std::span(json))));
    auto header = parseHeader(json, file.size());
    if (!header.ok()) {
        Error error = std::move(header).error();
        if (error.code == ErrorCode::damaged && error.location.tensor.empty() && !looksLike(head).empty())
            return notThis(std::move(error));
        return std::move(error).inFile(file.path());
    }
    return header;
}

}  // namespace shardscope::safetensors
