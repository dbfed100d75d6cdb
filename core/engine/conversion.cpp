// Planning (engine.h): from a source and a request to the target, its layout and the Plan. Writes
// nothing.
#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <unordered_map>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include "base/option_words.h"
#include "base/rule.h"
#include "base/text.h"
#include "base/units.h"
#include "engine/adapter.h"
#include "engine/average.h"
#include "engine/damage.h"
#include "engine/dequantized.h"
#include "engine/engine.h"
#include "engine/filled.h"
#include "engine/format_names.h"
#include "engine/masters.h"
#include "engine/merged.h"
#include "engine/model_config.h"
#include "engine/objects_file.h"
#include "engine/quantized.h"
#include "engine/recipe.h"
#include "engine/recipe_fit.h"
#include "engine/transformers.h"
#include "execute/view_reader.h"
#include "model/companions.h"
#include "model/coverage.h"
#include "model/infer_mesh.h"
#include "model/roles.h"
#include "plan/request_text.h"
#include "plan/source_placement.h"
#include "storage/named_path.h"
#include "storage/open_files.h"
#include "storage/url.h"

namespace shardscope {
namespace {

// What the process needs besides the catalogs and the buffers: code, libraries, thread stacks, allocator
// slack.
constexpr uint64_t kProcessBytes = uint64_t{48} << 20;
constexpr uint64_t kLeastBuffers = uint64_t{32} << 20;

std::string stem(const std::string& path) {
    std::string name = std::filesystem::path(path).filename().string();
    if (const size_t dot = name.rfind('.'); dot != std::string::npos) name.resize(dot);
    return name;
}

bool isMountPoint(const std::string& path) {
    struct statx info {};
    return ::statx(AT_FDCWD, path.c_str(), AT_SYMLINK_NOFOLLOW, 0, &info) == 0 &&
           (info.stx_attributes & info.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT);
}

// The destination is put in place by renaming, which some directories do not allow.
Status checkName(const std::string& destination) {
    SHARDSCOPE_TRY(checkScheme(destination));
    if (!schemeOf(destination).empty()) return {};  // what is there says by itself what it takes
    const std::string name = splitPath(destination).second;
    if (name.empty() || name == "/" || name == "." || name == "..")
        return makeError(ErrorCode::usage,
                         "the destination must have a name of its own, to be put in place by it")
            .inFile(destination)
            .withHint("name a new directory or file");
    if (isMountPoint(destination))
        return makeError(ErrorCode::usage,
                         "at the destination a file system is mounted, which cannot be replaced")
            .inFile(destination)
            .withHint("name a directory or file within it");
    return {};
}

// A destination inside the source, or around it, would be written over or read back.
Status checkApart(const std::string& source, const std::string& destination) {
    const std::filesystem::path from = canonicalPath(source), to = canonicalPath(destination);
    const auto inside = [](const std::filesystem::path& inner, const std::filesystem::path& outer) {
        return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
    };
    if (from == to) {
        return makeError(ErrorCode::usage,
                         "the destination is the source itself; a source is never written over")
            .inFile(destination);
    }
    if (inside(to, from)) {
        return makeError(ErrorCode::usage,
                         "the destination is inside the source; a source is never written into")
            .inFile(destination);
    }
    if (inside(from, to)) {
        return makeError(ErrorCode::usage, "the source is inside the destination").inFile(destination);
    }
    return {};
}

// Source tensors that the wanted ones are made of, each once, in order.
std::vector<TensorId> sourceTensors(const Catalog& source, const TargetSpec& spec) {
    std::vector<bool> used(source.tensorCount(), false);
    for (const TensorSource& from : spec.sources) {
        for (const TensorId t : from.tensors())
            used[t] = true;
    }
    std::vector<TensorId> tensors;
    for (TensorId t = 0; t < used.size(); ++t) {
        if (used[t]) tensors.push_back(t);
    }
    return tensors;
}

// `replicas`: chunks that hold what others of a tensor hold.
void findImpossible(const Catalog& source, const TargetSpec& spec, const ConversionRequest& request,
                    std::vector<PlanLeftOut>& impossible, size_t& replicas) {
    // Tensors of which the reader says that their pieces are not as the metadata claims.
    std::unordered_map<std::string_view, const Note*> fused;
    for (const Note& note : source.notes()) {
        if (note.rule == rule::layoutFused && note.severity == Severity::error)
            fused.emplace(note.tensor, &note);
    }
    for (TensorId w = 0; w < spec.target.tensorCount(); ++w) {
        const std::vector<TensorId> from = spec.sources[w].tensors();
        if (from.empty()) continue;
        const DType dtype = source.dtype(from.front());
        if (spec.target.dtype(w) != dtype && !castSupported(dtype, spec.target.dtype(w))) {
            impossible.push_back(
                {std::string(source.name(from.front())),
                 fmt::format("{} cannot be cast to {}", dtypeName(dtype), dtypeName(spec.target.dtype(w)))});
        }
    }
    for (const TensorId t : sourceTensors(source, spec)) {
        const std::string name(source.name(t));
        for (ChunkId c = source.firstChunk(t); c < source.endChunk(t); ++c) {
            const ChunkInfo chunk = source.chunk(t, c);
            if (!boxInside(chunk.offsets, chunk.lengths, source.shape(t))) {
                impossible.push_back({name, fmt::format("chunk {} leaves the tensor's shape {}",
                                                        formatBox(chunk.offsets, chunk.lengths),
                                                        formatDims(source.shape(t)))});
                break;
            }
            if (chunk.file == kNone && chunk.elements() > 0) {
                impossible.push_back({name, fmt::format("the metadata does not say where chunk {} is",
                                                        formatBox(chunk.offsets, chunk.lengths))});
                break;
            }
        }
        if (const auto it = fused.find(name); it != fused.end() && !spec.reordered.contains(t))
            impossible.push_back({name, it->second->message});
        const CoverageResult coverage = checkCoverage(source, t, 10, 1000);
        if (source.aliasOf(t) == kNone) replicas += coverage.replicas.size();
        if (coverage.gapElements > 0 && request.fillGaps == FillGaps::refuse) {
            std::string boxes;
            for (size_t i = 0; i < coverage.gaps.size() && i < 3; ++i)
                boxes += (i ? ", " : " ") + formatBox(coverage.gaps[i].offsets, coverage.gaps[i].lengths);
            impossible.push_back(
                {name, fmt::format("no chunk holds {} (coverage.gap):{}{}; {} nan|zero would fill them",
                                   counted(coverage.gapElements, "element"), boxes,
                                   coverage.gaps.size() > 3 ? ", ..." : "", option("fill-gaps"))});
        } else if (coverage.gapElements > 0 && request.fillGaps == FillGaps::nan &&
                   !dtypeIsFloat(source.dtype(t)) && !dtypeIsComplex(source.dtype(t))) {
            impossible.push_back({name, fmt::format("it has gaps, and {} has no NaN to fill them with",
                                                    dtypeName(source.dtype(t)))});
        }
        if (coverage.overlapCount > 0) {
            const ChunkInfo a = source.chunk(t, coverage.overlaps[0].first);
            const ChunkInfo b = source.chunk(t, coverage.overlaps[0].second);
            impossible.push_back(
                {name, fmt::format("chunks {} and {} share elements (coverage.overlap), so which of them is "
                                   "right cannot be known",
                                   formatBox(a.offsets, a.lengths), formatBox(b.offsets, b.lengths))});
        }
    }
}

// A cast that would round, though the source holds the masters: where no name says which they are.
void findHiddenMasters(const Catalog& source, const TargetSpec& spec, MasterWeights how,
                       std::vector<PlanLeftOut>& impossible) {
    if (how == MasterWeights::ignore || !spec.fromMasters.empty()) return;
    bool wanted = false;
    for (TensorId w = 0; w < spec.target.tensorCount() && !wanted; ++w) {
        const DType dtype = spec.target.dtype(w);
        wanted = spec.target.role(w) == Role::parameter &&
                 dtypePrecision(dtype) > dtypePrecision(spec.sources[w].dtypeIn(source, dtype));
    }
    if (!wanted && how != MasterWeights::use) return;
    if (const TensorId bucket = bucketOfMasters(source); bucket != kNone)
        impossible.push_back(
            {std::string(source.name(bucket)),
             fmt::format("it holds fp32 masters of weights, and not whose they are: {} finds them, {} takes "
                         "the weights as stored",
                         option("buckets", "parameters"), option("master-weights", "ignore"))});
}

// Without tensors a destination is of no use, and what is left of the source went unnoticed.
Status checkNotEmpty(const TargetSpec& spec, const TargetRequest& target) {
    const bool objectsAlone = !target.select.empty() && !spec.target.objects().empty();
    if (spec.target.tensorCount() > 0 || objectsAlone || !spec.impossible.empty()) return {};
    // Each reason once, with the first that it is true of.
    std::map<std::string, std::pair<size_t, std::string>> reasons;
    for (const auto* list : {&spec.leftOut, &spec.excluded}) {
        for (const PlanLeftOut& entry : *list) {
            auto& [count, first] = reasons[entry.why];
            if (count++ == 0) first = printable(entry.name, kNameInMessage);
        }
    }
    std::string why;
    for (const auto& [reason, about] : reasons) {
        if (why.size() > 400) break;
        why +=
            fmt::format("{}{} such as '{}' ({})", why.empty() ? "" : ", ", about.first, about.second, reason);
    }
    return unsupported(why.empty() ? "the source holds no tensors, so there is nothing to convert"
                                   : "no tensor would be converted: left out are " + why)
        .byRule(rule::metaEmpty)
        .withHint("'shardscope ls' shows what the source holds");
}

// What reading this tensor takes, scratch files included.
uint64_t bytesReadFor(const Checkpoint& checkpoint, const TensorSource& from, uint64_t memory) {
    const Catalog& source = checkpoint.catalog();
    if (!from.view && checkpoint.computed) {
        const ComputedTensors& computed = *checkpoint.computed;
        if (const auto found = computed.find(source.name(from.source)); found != computed.end())
            return found->second.stored;
    }
    if (!from.view) return source.bytes(from.source);
    const std::vector<TensorId> parts = from.tensors();
    if (parts.empty()) return 0;
    const ViewReading reading = viewReading(*from.view, dtypeBytes(source.dtype(parts.front())), memory);
    return reading.sourceBytes + reading.scratchBytes;
}

// Adds to the plan what of the tensors that the source cuts the target stores whole.
void countWhole(const PreparedConversion& p, const ConversionRequest& request, Plan& plan) {
    if (request.mesh.empty() && request.like.empty()) return;  // as the source has them, or all on one rank
    const Catalog& source = p.source.catalog();
    const Catalog& target = p.spec->target;
    if (target.rankCount() < 2) return;
    const auto isCut = [&](TensorId t) {
        return source.endChunk(t) - source.firstChunk(t) > 1 &&
               std::ranges::any_of(tensorCut(source, t).parts, [](int64_t parts) { return parts > 1; });
    };
    for (TensorId w = 0; w < target.tensorCount(); ++w) {
        if (target.aliasOf(w) != kNone) continue;
        const std::vector<TensorId> from = p.spec->sources[w].tensors();
        if (!std::ranges::any_of(from, [&](TensorId t) { return t < source.tensorCount() && isCut(t); }))
            continue;
        plan.cutBytes += target.bytes(w);
        const auto parts = tensorCut(target, w).parts;
        if (std::ranges::all_of(parts, [](int64_t n) { return n < 2; })) plan.wholeBytes += target.bytes(w);
    }
}

// Names the tensors that are computed, and what of.
void listComputed(const PreparedConversion& p, Plan& plan) {
    if (!p.source.computed) return;
    const ComputedTensors& computed = *p.source.computed;
    for (TensorId w = 0; w < p.spec->target.tensorCount(); ++w) {
        for (const TensorId t : p.spec->sources[w].tensors()) {
            if (t >= p.source.catalog().tensorCount()) continue;
            if (const auto found = computed.find(p.source.catalog().name(t)); found != computed.end())
                plan.made.push_back({std::string(p.spec->target.name(w)), found->second.how});
        }
    }
}

// Completes what was found on the way.
Plan makePlan(const PreparedConversion& p, const ConversionRequest& request) {
    const Catalog& source = p.source.catalog();
    const Catalog& target = p.spec->target;
    Plan plan = p.plan;
    plan.sourcePath = p.source.path;
    plan.sourceFormat = source.format();
    plan.targetPath = p.destination;
    plan.targetFormat = p.format->info().name;
    plan.targetVariant = p.writeOptions.variant;
    for (TensorId w = 0; w < target.tensorCount(); ++w) {
        if (target.aliasOf(w) != kNone) continue;
        plan.bytesRead += bytesReadFor(p.source, p.spec->sources[w], request.memory);
        for (size_t i = 0; i < p.inputs.size() && p.average->rules[w] != Average::Rule::last; ++i) {
            const TensorSource& from = p.average->inputs[i].sources[w];
            if (from.view || from.source != kNone)
                plan.bytesRead += bytesReadFor(p.inputs[i].source, from, request.memory);
        }
    }
    if (p.layout) {
        for (const TargetFile& file : p.layout->files) {
            plan.files.push_back({file.path, file.size});
            plan.bytesWritten += file.size;
        }
        for (const LeftOut& changed : p.layout->changed)
            plan.changed.push_back({changed.name, changed.why});
    }
    countWhole(p, request, plan);
    plan.leftOut = p.spec->leftOut;
    plan.excluded = p.spec->excluded;
    plan.renamed = p.spec->renamed;
    plan.made = p.spec->made;
    listComputed(p, plan);
    plan.notes = p.spec->notes;
    if (request.unguarded)
        plan.notes.push_back(
            {p.destination,
             "if its store has no conditional writes, another job that writes there at the same time may not "
             "be noticed; the object that makes a checkpoint of the others is still written last"});
    plan.unknown = p.spec->unknown;
    plan.fromMasters = p.spec->fromMasters;
    plan.mastersUnused = p.spec->mastersUnused;
    if (p.source.reader->dataElsewhere().empty() && storesChecksums(*p.source.reader, *p.spec))
        plan.checksums = request.on.empty()
                             ? "stored checksums are checked of records that are read whole, not of others"
                             : "stored checksums are not checked of records that several processes read";
    plan.tensors = target.tensorCount();
    plan.chunks = target.chunkCount();
    plan.objects = target.objects().size();
    plan.peakMemory = request.memory;
    // Reading and writing overlap on most machines; one and a half gigabytes a second of both is what a plain
    // NVMe disk does.
    plan.estimateSeconds = static_cast<double>(plan.bytesRead + plan.bytesWritten) / 3.0e9;
    return plan;
}

// What is wanted of one source.
struct Wanted {
    const Format* format;
    const WriteOptions& options;
    const TargetRequest& target;
    const Catalog* like;  // may be null
    bool cuts;            // the format holds parts of tensors
    bool skipDamaged;
    const StopToken& stop;

    Result<TargetSpec> of(const Checkpoint& source) const;
};

// Objects that are no business of weights alone: by their names, or because they are beside the weights.
std::function<bool(const ObjectInfo&)> stateObjects(const Catalog& catalog) {
    RoleFinder roles;
    for (TensorId t = 0; t < catalog.tensorCount(); ++t)
        roles.add(catalog.name(t));
    for (const ObjectInfo& object : catalog.objects())
        roles.add(object.name);
    return [roles = std::move(roles), &catalog](const ObjectInfo& object) {
        const std::string file = object.file == kNone ? std::string() : catalog.files()[object.file].path;
        const bool beside = companionState(file) != CompanionState::none &&
                            (object.name == file || object.name.starts_with(file + ":"));
        const Role role = roles.role(object.name);
        return beside || role == Role::optimizer || role == Role::other;
    };
}

Result<TargetSpec> Wanted::of(const Checkpoint& source) const {
    const Catalog& catalog = source.catalog();
    const FormatInfo& info = format->info();
    TargetInput input;
    input.source = &catalog;
    input.like = like;
    input.keepPlacement =
        format == source.format && cuts && (!info.wholeByDefault || options.variant == catalog.variant());
    input.replicas = info.replicas;
    input.format = info.name;
    input.variant = options.variant;
    if (target.weightsOnly) input.isState = stateObjects(catalog);
    if (target.masterWeights != MasterWeights::ignore) input.masters = mastersOf(catalog);
    const Reader& reader = *source.reader;
    std::unordered_map<ObjectId, Value> values;  // resolveTarget may run twice; each object is read once
    input.objectValue = [&](ObjectId o) -> Result<Value> {
        SHARDSCOPE_TRY(stop.poll());
        if (const auto it = values.find(o); it != values.end()) return it->second;
        SHARDSCOPE_ASSIGN(Value value, reader.objectValue(o));
        values.emplace(o, value);
        return value;
    };
    // What comes from the format itself stands where that wants it.
    input.pathFor = format->pathsFor(catalog, input.objectValue, options);
    if (!input.pathFor && format != source.format)
        input.pathFor = [&](const Path& path, bool optimizer) { return format->pathFor(path, optimizer); };
    // Where the framework's ranks say it, and the user does not, that is where the chunks go.
    const Format::Placing placing = format->placing;
    const bool places = placing && !like && target.shard.empty() && target.stage.empty();
    const auto resolve = [&]() -> Result<TargetSpec> {
        SHARDSCOPE_ASSIGN(TargetSpec resolved, resolveTarget(input, target));
        if (places) {
            SHARDSCOPE_ASSIGN(resolved.target, placing(resolved.target, target.mesh, catalog, options));
        }
        return resolved;
    };
    SHARDSCOPE_ASSIGN(TargetSpec spec, resolve());
    SHARDSCOPE_ASSIGN(const TensorSelection asked, TensorSelection::of(target, target.leavesOptimizer));
    SHARDSCOPE_ASSIGN(const Damage damage, damageOf(source, sourceTensors(catalog, spec), asked, stop));
    if (damage.any() && !skipDamaged) return damage.asError(catalog);
    if (damage.any()) {
        input.damaged = [&](TensorId t) {
            const auto found = damage.tensors.find(t);
            return found == damage.tensors.end() ? std::string() : "damaged: " + found->second.message;
        };
        SHARDSCOPE_ASSIGN(spec, resolve());
    }
    const std::vector<LeftOut> cannot = format->cannotHold(spec.target, options);
    if (!cannot.empty()) {
        std::unordered_map<std::string_view, std::string_view> reasons;
        for (const LeftOut& entry : cannot)
            reasons.emplace(entry.name, entry.why);
        input.cannotHold = [reasons = std::move(reasons)](std::string_view name) {
            const auto it = reasons.find(name);
            return it == reasons.end() ? std::string() : std::string(it->second);
        };
        SHARDSCOPE_ASSIGN(spec, resolve());
    }
    const std::vector<TargetCopy> copies = format->copies(spec.target, options);
    for (const TargetCopy& copy : copies) {
        const std::string of(spec.target.name(copy.of));
        if (copy.path.empty()) {
            input.apart.insert(of);
        } else {
            input.copies.push_back({copy.path, of, copy.dtype, copy.role, copy.why});
        }
    }
    if (!copies.empty()) {
        SHARDSCOPE_ASSIGN(spec, resolve());
    }
    for (PlanLeftOut& entry : damage.list(catalog)) {
        if (!std::ranges::count(spec.leftOut, entry.name, &PlanLeftOut::name))
            spec.leftOut.push_back(std::move(entry));
    }
    SHARDSCOPE_TRY(checkNotEmpty(spec, target));
    return spec;
}

}  // namespace

Status checkComplete(const Catalog& catalog, const std::string& path, bool optimizerState) {
    for (const Note& note : catalog.notes()) {
        if (note.lacks == Note::Lacks::nothing ||
            (note.lacks == Note::Lacks::optimizerState && !optimizerState))
            continue;
        Error error =
            makeError(note.rule == rule::fileMissing ? ErrorCode::notFound : ErrorCode::damaged, note.message)
                .inFile(note.file.empty() ? path : path + "/" + note.file)
                .byRule(note.rule)
                .withHint("'shardscope validate' lists everything that is hurt");
        if (!note.tensor.empty()) error.location.tensor = note.tensor;
        error.location.offset = note.offset;
        return error;
    }
    return {};
}

std::optional<Mesh> meshOf(const Catalog& catalog) {
    if (catalog.mesh()) return catalog.mesh();
    return inferMesh(catalog);
}

Result<uint64_t> bufferBudget(uint64_t memory, uint64_t held) {
    const uint64_t taken = kProcessBytes + held;
    if (memory < taken + kLeastBuffers) {
        return makeError(
                   ErrorCode::impossible,
                   fmt::format(
                       "{} {} MiB is too little: metadata and program need {} MiB, buffers at least {} MiB",
                       option("memory"), memory >> 20, taken >> 20, kLeastBuffers >> 20))
            .withHint(
                fmt::format("give {} {}MiB or more", option("memory"), ((taken + kLeastBuffers) >> 20) + 1));
    }
    return memory - taken;
}

namespace {

// What is written, and how. Errors: usage, unsupported.
Status chooseFormat(PreparedConversion& p, const ConversionRequest& request, const StopToken& stop) {
    p.format = request.format.empty() ? p.source.format : findFormat(request.format);
    if (!p.format) return notAFormat(request.format);
    const FormatInfo& info = p.format->info();
    if (!info.writes) return unsupported(fmt::format("{} is read but not written", info.title));
    SHARDSCOPE_TRY(checkName(p.destination));
    SHARDSCOPE_TRY(checkApart(p.source.path, p.destination));
    p.writeOptions.variant = request.variant;
    p.writeOptions.maxFileSize = request.maxFileSize;
    p.writeOptions.archiveName = stem(p.destination);
    p.writeOptions.strict = request.strict;
    p.writeOptions.stop = stop;
    p.singleFile = info.singleFile;
    if (const FormatInfo::Model* model = modelAsked(request.format, request.variant);
        model && !model->variant.empty()) {
        if (!request.variant.empty() && request.variant != model->variant)
            return makeError(ErrorCode::usage, fmt::format("{} stands for the variant '{}' alone",
                                                           option("to", model->synonym), model->variant));
        p.writeOptions.variant = model->variant;
    }
    if (!info.models.empty()) {
        const auto config = statedConfig(p.source, request.assets);
        if (config->values.is_object()) p.writeOptions.modelConfig = dumpJson(config->values);
    }
    if (!info.fileVariant.empty() && p.destination.ends_with("." + info.suffixes.front())) {
        p.writeOptions.variant = info.fileVariant;
        p.singleFile = true;
    }
    return {};
}

// Says of each object that is left out whether --objects keeps it; the names of those.
Result<std::set<std::string, std::less<>>> keepObjects(PreparedConversion& p, const std::string& file) {
    std::set<std::string, std::less<>> kept;
    if (file.empty()) return kept;
    SHARDSCOPE_ASSIGN(const CompanionObjects beside, companionObjects(p.source, p.spec->leftOut));
    for (const ObjectInfo& object : beside.kept)
        kept.insert(object.name);
    for (PlanLeftOut& left : p.spec->leftOut) {
        if (kept.contains(left.name)) {
            left.why += "; kept in " + file;
        } else if (const auto it = beside.refused.find(left.name); it != beside.refused.end()) {
            left.why += fmt::format("; not kept in {}: {}", file, it->second);
        }
    }
    return kept;
}

// A configuration that says that the weights are quantized, where they no longer are.
Status describeComputed(PreparedConversion& p, std::vector<AddedFile>& assets) {
    for (AddedFile& asset : assets) {
        if (asset.name != "config.json" || !asset.copied) continue;
        SHARDSCOPE_ASSIGN(const std::string text, wholeText(*asset.copied, kMostConfig));
        std::string plain = configWithoutQuantization(text);
        if (plain.empty()) continue;
        asset.bytes = std::move(plain);
        asset.copied = nullptr;
        p.plan.changed.push_back(
            {asset.name, fmt::format("without what it says of quantization: the weights are {}",
                                     dtypeName(p.source.dequantized->dtype))});
    }
    return {};
}

// Where each byte goes, with the files that are added. Errors: usage, and those of the format.
Status layOut(PreparedConversion& p, const ConversionRequest& request, const TargetRequest& target) {
    const FormatInfo& info = p.format->info();
    const bool takesAssets = !info.assets.empty() && !p.singleFile;
    if (!request.assets.empty() && request.assets != "auto" && request.assets != "none" && !takesAssets)
        return makeError(
            ErrorCode::usage,
            fmt::format("{} is for formats whose directories hold configuration and tokenizer, not for {}",
                        option("assets"), info.title));
    const std::string& variant = p.writeOptions.variant;
    if (!variant.empty() && !std::ranges::count(info.variants, variant))
        return makeError(ErrorCode::usage, fmt::format("'{}' is not a variant of {}", variant, info.title))
            .withHint(info.variants.empty()
                          ? "it is written in one way"
                          : fmt::format("the variants are {}", fmt::join(info.variants, ", ")));
    auto layout = p.format->layout(p.spec->target, p.writeOptions);
    if (!layout.ok()) {
        if (layout.error().code != ErrorCode::impossible) return std::move(layout).error();
        p.plan.impossible.push_back({layout.error().location.tensor, layout.error().message});
        return {};
    }
    SHARDSCOPE_ASSIGN(const FilledElements before, readFilled(p.source));
    p.filled = filledBy(p.source.catalog(), *p.spec, request.fillGaps, before);
    std::vector<AddedFile> added;
    if (takesAssets && target.adapter) {
        SHARDSCOPE_ASSIGN(added, adapterFiles(p.spec->target, *target.adapter, **layout));
    } else if (takesAssets) {
        SHARDSCOPE_ASSIGN(added, findAssets(p.source, request.assets, p.plan.assetsFrom));
        if (p.source.dequantized) SHARDSCOPE_TRY(describeComputed(p, added));
        for (AddedFile& asset : added) {
            if (info.assets != ".") asset.name = joinPath(info.assets, asset.name);
            p.plan.assets.push_back(asset.name);
        }
    }
    if (!p.singleFile && !p.filled.tensors.empty()) added.push_back(recordOf(p.filled));
    p.layout = withFiles(std::move(layout).value(), std::move(added));
    return {};
}

// Cuts the tensors over the target's mesh as the source cuts them: where that is asked for, and where the
// same format on another mesh is all that is asked for.
Status placeAsSource(PreparedConversion& p, const ConversionRequest& request, bool cuts,
                     TargetRequest& target) {
    const bool asked = request.like == kLikeSource;
    const bool changesNames = !target.rename.empty() || !target.steps.empty();
    const bool ruled = !target.shard.empty() || !target.stage.empty();
    if (asked && (!target.mesh || ruled || changesNames))
        return makeError(
            ErrorCode::usage,
            fmt::format("{} shards the source's tensors over another mesh: it needs {}, and goes "
                        "neither with rules of where the bytes go nor with new names",
                        option("like", kLikeSource), option("mesh")));
    const bool byItself = request.format.empty() && request.like.empty() && target.mesh &&
                          target.mesh->ranks() > 1 && cuts && !ruled && !changesNames && !p.format->placing &&
                          !p.format->info().replicas;
    if (!asked && !byItself) return {};
    const Catalog& catalog = p.source.catalog();
    const std::optional<Mesh> mesh = meshOf(catalog);
    if (!mesh) return {};  // nothing is cut
    const SourcePlacement placement = placementOfSource(catalog, *mesh, *target.mesh);
    target.shard = placement.rules();
    for (const PlacementClass& c : placement.classes)
        p.plan.placement.push_back(
            {formatShardRule({"", c.axisDims}).substr(1),
             fmt::format("{}, such as '{}'", counted(c.tensors, "tensor"), c.example)});
    for (const std::string& axis : placement.unused)
        p.plan.placement.push_back(
            {axis, fmt::format("shards nothing: the source's mesh is {}", formatMesh(*mesh))});
    if (placement.unexplained > 0)
        p.plan.placement.push_back(
            {"whole", fmt::format("no axis of {} explains the sharding of {}", formatMesh(*mesh),
                                  counted(placement.unexplained, "tensor"))});
    return {};
}

// Shows the source with the adapter merged in. `base` becomes the source before that: quantized weights that
// the adapter changes are float32 there, so that they are rounded once.
Status takeAdapter(PreparedConversion& p, const ConversionRequest& request, const std::string& destination,
                   const StopToken& stop, std::optional<AdapterMerge>& merge, Checkpoint& base) {
    if (!request.average.empty())
        return makeError(ErrorCode::usage,
                         fmt::format("an average takes no {}: merge it into its result", option("adapter")));
    SHARDSCOPE_ASSIGN(merge, adapterMerge(p.source, request.adapter, stop));
    SHARDSCOPE_TRY(checkApart(merge->adapter.path, destination));
    p.adapter = merge->adapter.reader;
    p.adapterWords = merge->words;
    p.adapterHeld = 2 * merge->held;
    if (!request.dequantize.empty()) {
        std::set<std::string, std::less<>> changed;
        for (const MergedTensor& tensor : merge->tensors)
            changed.emplace(p.source.catalog().name(tensor.base));
        SHARDSCOPE_ASSIGN(p.source, dequantized(base, p.source.dequantized->dtype, stop, changed));
    }
    base = p.source;
    SHARDSCOPE_ASSIGN(p.source, mergedCheckpoint(base, *merge, nullptr, stop));
    return {};
}

// Who asked for a model gets one that loads.
void refuseUnloadable(PreparedConversion& p) {
    for (const std::string& why : p.plan.unloadable)
        p.plan.impossible.push_back(
            {p.destination, fmt::format("transformers will not load it: {} ({} writes it all the same)", why,
                                        option("to", "safetensors"))});
}

}  // namespace

Result<PreparedConversion> prepareConversion(const Checkpoint& given, const std::string& destination,
                                             const ConversionRequest& request, const StopToken& stop) {
    PreparedConversion p;
    Checkpoint base = request.fillGaps == FillGaps::refuse ? given : withoutLostChunks(given);
    p.source = base;
    if (!request.dequantize.empty()) {
        SHARDSCOPE_ASSIGN(const DType dtype, dequantizedDtype(request.dequantize));
        SHARDSCOPE_ASSIGN(p.source, dequantized(p.source, dtype, stop));
    }
    std::optional<AdapterMerge> merge;
    if (!request.adapter.empty()) SHARDSCOPE_TRY(takeAdapter(p, request, destination, stop, merge, base));
    Checkpoint source = p.source;
    p.destination = destination;
    while (p.destination.size() > 1 && p.destination.ends_with('/'))
        p.destination.pop_back();
    SHARDSCOPE_ASSIGN(TargetRequest target, targetRequest(request));
    const bool model = modelAsked(request.format, request.variant) != nullptr;
    if (request.map == kAutomaticRecipe || (model && request.map.empty() && request.rename.empty())) {
        SHARDSCOPE_TRY(applyFittingRecipe(source, request,
                                          request.format.empty() ? source.catalog().format() : request.format,
                                          target, p.plan.recipe, stop));
    } else if (!request.map.empty()) {
        SHARDSCOPE_TRY(applyRecipe(request.map, request.set, source, request.assets, target));
    } else if (!request.set.empty()) {
        return makeError(ErrorCode::usage, fmt::format("{} gives values to a recipe, so it needs {}",
                                                       option("set"), option("map")));
    }
    SHARDSCOPE_TRY(chooseFormat(p, request, stop));
    const FormatInfo& info = p.format->info();
    const bool cuts = info.shards && !std::ranges::count(info.wholeVariants, p.writeOptions.variant);
    const auto needsParts = [&](const char* what) {
        return makeError(ErrorCode::usage, fmt::format("{} holds whole tensors; {} needs a sharded format",
                                                       info.title, option(what)));
    };
    if (target.mesh && target.mesh->ranks() > 1 && !cuts) return needsParts("mesh");
    std::optional<Checkpoint> like;
    if (request.like == kLikeSource && !cuts) return needsParts("like");
    SHARDSCOPE_TRY(placeAsSource(p, request, cuts, target));
    if (!request.like.empty() && request.like != kLikeSource) {
        CheckpointOptions options;
        options.io = request.io;
        SHARDSCOPE_ASSIGN(like, openCheckpoint(request.like, options));
        if (!cuts) return needsParts("like");
    }

    const Wanted wanted{p.format, p.writeOptions,      target, like ? &like->catalog() : nullptr,
                        cuts,     request.skipDamaged, stop};
    SHARDSCOPE_ASSIGN(TargetSpec spec, wanted.of(source));
    if (merge && !target.cast.empty()) {
        SHARDSCOPE_ASSIGN(p.source, mergedCheckpoint(base, *merge, &spec, stop));
        source = p.source;
        SHARDSCOPE_ASSIGN(spec, wanted.of(source));
    }
    p.spec = std::make_unique<TargetSpec>(std::move(spec));
    std::vector<PlanLeftOut>& impossible = p.plan.impossible = p.spec->impossible;
    size_t replicas = 0;
    findImpossible(source.catalog(), *p.spec, request, impossible, replicas);
    findHiddenMasters(source.catalog(), *p.spec, target.masterWeights, impossible);
    if (!request.takesParts) checkQuantized(source, *p.spec, impossible, p.spec->notes);
    if (merge) {
        checkMerged(*p.spec, impossible);
        p.spec->notes.insert(p.spec->notes.end(), merge->notes.begin(), merge->notes.end());
    }
    SHARDSCOPE_ASSIGN(const auto kept, keepObjects(p, request.objectsFile));
    if (!request.average.empty()) {
        SHARDSCOPE_TRY(prepareAverage(
            p, request, [&](const Checkpoint& input) { return wanted.of(input); }, stop, impossible));
        for (const PreparedInput& input : p.inputs) {
            SHARDSCOPE_TRY(checkApart(input.source.path, p.destination));
            findImpossible(input.source.catalog(), *input.spec, request, impossible, replicas);
        }
    }
    p.plan.replicas = replicas;
    if (!request.expect.empty())
        SHARDSCOPE_TRY(checkExpected(request.expect, p.spec->target, stop, impossible));
    for (const PlanLeftOut& entry : p.spec->leftOut) {
        if (!request.strict || kept.contains(entry.name)) continue;
        impossible.push_back(
            {entry.name, entry.why + fmt::format(" ({} leaves nothing out)", option("strict"))});
    }
    for (const PlanLeftOut& entry : p.spec->unknown) {
        if (!request.strict) break;
        impossible.push_back({entry.name, fmt::format("the recipe does not know it ({} leaves no name of the "
                                                      "source among others)",
                                                      option("strict"))});
    }
    SHARDSCOPE_TRY(layOut(p, request, target));
    p.plan = makePlan(p, request);
    // An adapter is for PEFT.
    p.plan.forTransformers = !target.adapter && isForTransformers(p);
    if (p.plan.forTransformers) p.plan.unloadable = whyUnloadable(p);
    if (model) refuseUnloadable(p);
    return p;
}

}  // namespace shardscope
