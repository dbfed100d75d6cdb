#include "engine/filled.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/checked.h"
#include "base/text.h"
#include "engine/damage.h"
#include "engine/expected.h"
#include "engine/quantized.h"
#include "engine/whole_file.h"
#include "model/coverage.h"
#include "storage/open_files.h"

namespace shardscope {

namespace {

using nlohmann::json;

constexpr std::string_view kSchema = "shardscope.filled/1";
constexpr size_t kMostFilledBoxes = 100'000;  // of all tensors; beyond it they are only named
constexpr uint64_t kMostRecordBytes = uint64_t{64} << 20;

std::string encode(const FilledElements& filled) {
    json tensors = json::array();
    for (const auto& [name, tensor] : filled.tensors) {
        json boxes = nullptr;
        if (tensor.boxes) {
            boxes = json::array();
            for (const Box& box : *tensor.boxes)
                boxes.push_back({{"offsets", box.offsets}, {"lengths", box.lengths}});
        }
        tensors.push_back({{"name", name}, {"shape", tensor.shape}, {"boxes", std::move(boxes)}});
    }
    const json document{{"schema", kSchema},
                        {"fill", filled.fill == FillGaps::zero ? "zero" : "nan"},
                        {"tensors", std::move(tensors)}};
    return dumpJson(document) + "\n";
}

std::optional<Dims> dimsOf(const json& parent, const char* key) {
    const auto it = parent.find(key);
    if (it == parent.end() || !it->is_array() || it->size() > kMaxRank) return std::nullopt;
    Dims dims;
    for (const json& value : *it) {
        if (!value.is_number_integer()) return std::nullopt;
        const auto number = value.get<int64_t>();
        if (number < 0 || number > kMaxDim) return std::nullopt;
        dims.push_back(number);
    }
    return dims;
}

std::optional<FilledElements> decode(const std::string& text) {
    const json document = json::parse(text, nullptr, false);
    if (!document.is_object() || document.value("schema", json()) != kSchema) return std::nullopt;
    FilledElements filled;
    const json fill = document.value("fill", json());
    if (fill != "nan" && fill != "zero") return std::nullopt;
    filled.fill = fill == "zero" ? FillGaps::zero : FillGaps::nan;
    const json tensors = document.value("tensors", json());
    if (!tensors.is_array()) return std::nullopt;
    for (const json& entry : tensors) {
        if (!entry.is_object() || !entry.value("name", json()).is_string()) return std::nullopt;
        FilledElements::Tensor tensor;
        const auto shape = dimsOf(entry, "shape");
        if (!shape) return std::nullopt;
        tensor.shape = *shape;
        const json boxes = entry.value("boxes", json());
        if (boxes.is_array()) {
            tensor.boxes.emplace();
            for (const json& box : boxes) {
                if (!box.is_object()) return std::nullopt;
                const auto offsets = dimsOf(box, "offsets"), lengths = dimsOf(box, "lengths");
                if (!offsets || !lengths || offsets->size() != shape->size() ||
                    lengths->size() != shape->size() || !boxInside(*offsets, *lengths, *shape))
                    return std::nullopt;
                tensor.boxes->push_back({*offsets, *lengths});
            }
        } else if (!boxes.is_null()) {
            return std::nullopt;
        }
        filled.tensors.emplace(entry["name"].get<std::string>(), std::move(tensor));
    }
    return filled;
}

Result<std::optional<FilledElements>> readRecord(const Directory& directory, const std::string& name) {
    const auto there = directory.stat(name);
    if (!there.ok() && there.error().code == ErrorCode::notFound) return std::optional<FilledElements>();
    SHARDSCOPE_ASSIGN(const auto file, directory.openFile(name));
    SHARDSCOPE_ASSIGN(const std::string text, wholeText(*file, kMostRecordBytes));
    auto filled = decode(text);
    if (!filled) return damaged("this is not a record of filled elements").inFile(file->path());
    return std::optional(std::move(*filled));
}

class EmptiedReader final : public Reader {
  public:
    EmptiedReader(std::shared_ptr<const Reader> source, Catalog catalog)
        : source_(std::move(source)), catalog_(std::move(catalog)) {}

    const Catalog& catalog() const override { return catalog_; }
    Result<Extent> locate(ChunkId chunk) const override { return source_->locate(chunk); }
    Result<Value> objectValue(ObjectId object) const override { return source_->objectValue(object); }
    Result<std::vector<Note>> fileNotes() const override { return source_->fileNotes(); }
    Result<std::shared_ptr<const ReadFile>> openFile(FileId file) const override {
        return source_->openFile(file);
    }
    std::string dataElsewhere() const override { return source_->dataElsewhere(); }

  private:
    std::shared_ptr<const Reader> source_;
    Catalog catalog_;
};

std::string besideName(const std::string& file) {
    return file + ".filled.json";
}

}  // namespace

Checkpoint withoutLostChunks(const Checkpoint& source) {
    const Catalog& catalog = source.catalog();
    std::vector<ChunkId> lost;
    for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
        for (ChunkId c = catalog.firstChunk(t); c < catalog.endChunk(t); ++c) {
            const std::optional<Error> why = whyLost(catalog, catalog.chunk(t, c));
            if (why && why->code != ErrorCode::unsafe) lost.push_back(c);
        }
    }
    if (lost.empty()) return source;
    CatalogBuilder emptied(catalog);
    for (const ChunkId c : lost)
        emptied.emptyChunk(c);
    Checkpoint rest = source;
    rest.reader = std::make_shared<EmptiedReader>(source.reader, std::move(emptied).finish());
    return rest;
}

FilledElements filledBy(const Catalog& source, const TargetSpec& spec, FillGaps fill,
                        const FilledElements& before) {
    FilledElements filled;
    filled.fill = fill == FillGaps::refuse ? before.fill : fill;
    if (fill == FillGaps::refuse && before.tensors.empty()) return filled;
    std::map<TensorId, CoverageResult> coverage;
    const auto gapsOf = [&](TensorId t) -> const CoverageResult& {
        const auto [it, isNew] = coverage.try_emplace(t);
        if (isNew && fill != FillGaps::refuse) it->second = checkCoverage(source, t, 1, kMostFilledBoxes);
        return it->second;
    };
    const auto filledBefore = [&](TensorId t) -> const FilledElements::Tensor* {
        const auto found = before.tensors.find(std::string(source.name(t)));
        if (found == before.tensors.end() || !std::ranges::equal(found->second.shape, source.shape(t)))
            return nullptr;
        return &found->second;
    };
    size_t boxes = 0;
    for (TensorId w = 0; w < spec.target.tensorCount(); ++w) {
        if (spec.target.aliasOf(w) != kNone) continue;
        const TensorSource& from = spec.sources[w];
        bool gaps = false;
        for (const TensorId t : from.tensors())
            gaps = gaps || gapsOf(t).gapElements > 0 || filledBefore(t);
        if (!gaps) continue;
        FilledElements::Tensor tensor;
        const DimSpan shape = spec.target.shape(w);
        tensor.shape.assign(shape.begin(), shape.end());
        if (!from.view) {
            const CoverageResult& found = gapsOf(from.source);
            std::vector<Box> all = found.gaps;
            uint64_t listed = 0;
            for (const Box& box : found.gaps)
                listed += static_cast<uint64_t>(elementCount(box.lengths));
            bool known = listed == found.gapElements;
            if (const FilledElements::Tensor* earlier = filledBefore(from.source)) {
                known = known && earlier->boxes && before.fill == filled.fill;
                if (known) all.insert(all.end(), earlier->boxes->begin(), earlier->boxes->end());
            }
            // Where a step has made the tensor of others, too many boxes were needed, or it was filled with
            // one thing and with another, it is named without them.
            if (known && boxes + all.size() <= kMostFilledBoxes) {
                boxes += all.size();
                tensor.boxes = std::move(all);
            }
        }
        filled.tensors.emplace(spec.target.name(w), std::move(tensor));
    }
    return filled;
}

AddedFile recordOf(const FilledElements& filled) {
    return {std::string(kFilledName), encode(filled), nullptr};
}

Status putRecordBeside(const std::string& destination, const FilledElements& filled) {
    const auto fileSystem = systemFileSystem();
    const auto [parent, file] = splitPath(destination);
    const std::string name = besideName(file);
    SHARDSCOPE_ASSIGN(const auto directory, fileSystem->openDirectory(parent));
    // Only a record is ever replaced.
    const auto before = readRecord(*directory, name);
    if (before.ok() && *before) SHARDSCOPE_TRY(directory->removeFile(name));
    if (filled.tensors.empty()) return {};
    if (!before.ok()) return before.error();
    return putWholeFile(fileSystem, parent + "/" + name, encode(filled), false);
}

Result<FilledElements> readFilled(const Checkpoint& checkpoint) {
    auto source = sourceFor(checkpoint.path, IoMode::automatic, checkpoint.fileSystem);
    if (!source.ok()) return FilledElements{};  // an opened checkpoint without a place in the file system
    std::vector<std::string> names;
    if (!source->entry.empty()) names.push_back(besideName(source->entry));
    names.emplace_back(kFilledName);
    for (const std::string& name : names) {
        SHARDSCOPE_ASSIGN(auto found, readRecord(*source->directory, name));
        if (found) return std::move(*found);
    }
    return FilledElements{};
}

Result<ValidationReport> validateCheckpoint(const Checkpoint& checkpoint, const ValidateOptions& options,
                                            const Resources& resources) {
    ValidateOptions all = options;
    SHARDSCOPE_ASSIGN(std::vector<Note> notes, expectedNotes(checkpoint, options.level, resources));
    notes.insert(notes.begin(), checkpoint.notes.begin(), checkpoint.notes.end());
    for (Note& note : quantizedNotes(checkpoint))
        notes.push_back(std::move(note));
    if (options.notes) notes.insert(notes.end(), options.notes->begin(), options.notes->end());
    all.notes = &notes;
    FilledElements filled;
    std::string unread;
    if (options.level == ValidateLevel::values && !options.filled) {
        auto record = readFilled(checkpoint);
        if (record.ok())
            filled = std::move(record).value();
        else
            unread = "what a conversion filled in: " + describe(record.error());
        all.filled = &filled;
    }
    SHARDSCOPE_ASSIGN(ValidationReport report, validateCheckpoint(*checkpoint.reader, all, resources));
    if (!unread.empty()) report.notChecked.push_back({std::move(unread)});
    return report;
}

}  // namespace shardscope
