#include <algorithm>

#include <fmt/format.h>

#include "cli/application.h"
#include "cli/output_file.h"
#include "cli/text.h"
#include "engine/masters.h"
#include "engine/whole_file.h"

namespace shardscope::cli {
namespace {

struct ExtractOptions {
    std::string path, tensor, file;
    bool overwrite = false;
};

// NumPy's descr of a dtype; types that NumPy lacks are kept as raw bits of the same width.
std::string numpyDescr(DType dtype, bool& rawBits) {
    rawBits = false;
    switch (dtype) {
        case DType::boolean:
            return "|b1";
        case DType::uint8:
            return "|u1";
        case DType::int8:
            return "|i1";
        case DType::uint16:
            return "<u2";
        case DType::int16:
            return "<i2";
        case DType::uint32:
            return "<u4";
        case DType::int32:
            return "<i4";
        case DType::uint64:
            return "<u8";
        case DType::int64:
            return "<i8";
        case DType::float16:
            return "<f2";
        case DType::float32:
            return "<f4";
        case DType::float64:
            return "<f8";
        case DType::complex64:
            return "<c8";
        case DType::complex128:
            return "<c16";
        default:
            break;
    }
    rawBits = true;
    return dtypeBytes(dtype) == 1 ? "|u1" : dtypeBytes(dtype) == 2 ? "<u2" : "<u4";
}

// The header of a version 1.0 .npy file, padded so that data starts at a multiple of 64.
std::string numpyHeader(const std::string& descr, DimSpan shape) {
    std::string dims;
    for (int64_t d : shape)
        dims += fmt::format("{}, ", d);
    if (shape.size() > 1) dims.resize(dims.size() - 2);
    if (shape.size() == 1) dims.pop_back();
    std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr, dims);
    const size_t padded = (10 + text.size() + 1 + 63) / 64 * 64;
    text += std::string(padded - 10 - text.size() - 1, ' ') + "\n";
    std::string header("\x93NUMPY\x01\x00", 8);
    header += static_cast<char>(text.size() & 0xFF);
    header += static_cast<char>(text.size() >> 8);
    return header + text;
}

Status writeRaw(const Checkpoint& checkpoint, TensorId t, const std::string& header, const std::string& path,
                bool overwrite, const Resources& resources) {
    SHARDSCOPE_ASSIGN(
        const auto out,
        WholeFile::begin(systemFileSystem(), path, header.size() + checkpoint.catalog().bytes(t), overwrite));
    SHARDSCOPE_TRY(out->append(std::as_bytes(std::span(header))));
    ScanOptions ordered;
    ordered.ordered = true;
    SHARDSCOPE_TRY(scanTensors(*checkpoint.reader, {t}, ordered, resources,
                               [&](const TileView& tile) { return out->append(tile.bytes); }));
    return out->putInPlace();
}

// A regular expression that matches exactly this name.
std::string exactly(std::string_view name) {
    std::string pattern = "re:";
    for (char c : name) {
        if (std::string_view(R"(\^$.|?*+()[]{}/)").find(c) != std::string_view::npos) pattern += '\\';
        pattern += c;
    }
    return pattern;
}

Result<int> extract(const Context& context, const ExtractOptions& options) {
    SHARDSCOPE_TRY(
        checkOutputFile(options.file, options.path, options.overwrite ? Replace::yes : Replace::no));
    SHARDSCOPE_ASSIGN(const Checkpoint checkpoint, context.open(options.path));
    const Catalog& catalog = checkpoint.catalog();
    TensorId t = catalog.find(options.tensor);
    if (t == kNone) {
        return makeError(ErrorCode::notFound, fmt::format("has no tensor '{}'", options.tensor))
            .inFile(options.path)
            .withHint("'shardscope ls' lists the names");
    }
    const bool masters =
        std::ranges::count(context.own, std::pair<std::string, std::string>("--master-weights", "use"));
    if (const auto known = masters ? mastersOf(catalog) : std::vector<TensorId>();
        !known.empty() && known[t] != kNone)
        t = known[t];
    const DType dtype = catalog.dtype(t);
    std::string note;
    if (options.file.ends_with(".safetensors")) {
        ConversionRequest settings;
        settings.format = "safetensors";
        settings.select = {exactly(options.tensor)};
        settings.overwrite = options.overwrite;
        settings.masterWeights = masters ? MasterWeights::use : MasterWeights::automatic;
        static_cast<WorkLimits&>(settings) = context;
        SHARDSCOPE_ASSIGN(const PreparedConversion prepared,
                          prepareConversion(checkpoint, options.file, settings, context.stop));
        if (prepared.plan.tensors == 0 && !prepared.plan.leftOut.empty()) {
            return makeError(ErrorCode::impossible, prepared.plan.leftOut[0].why).ofTensor(options.tensor);
        }
        auto report = runPrepared(prepared, settings, nullptr, context.stop);
        if (!report.ok()) return std::move(report).error();
    } else {
        std::string header;
        if (options.file.ends_with(".npy")) {
            if (!dtypeIsWholeBytes(dtype)) {
                return makeError(ErrorCode::impossible,
                                 fmt::format("{} has no place in a .npy file", dtypeName(dtype)))
                    .ofTensor(options.tensor)
                    .withHint("write .safetensors or raw bytes");
            }
            bool rawBits = false;
            const std::string descr = numpyDescr(dtype, rawBits);
            if (rawBits)
                note = fmt::format("NumPy has no {}: the file holds its bits as {}", dtypeName(dtype), descr);
            header = numpyHeader(descr, catalog.shape(t));
        }
        Work work(context, catalog.memoryBytes());
        SHARDSCOPE_TRY(work.start());
        SHARDSCOPE_TRY(writeRaw(checkpoint, t, header, options.file, options.overwrite, work.resources()));
    }
    if (context.json) {
        printJson({{"schema", "shardscope.extract/1"},
                   {"file", options.file},
                   {"dtype", dtypeName(dtype)},
                   {"shape", dimsJson(catalog.shape(t))},
                   {"note", note}});
    } else {
        fmt::print("{}: {} {}, {}\n", printable(options.file), dtypeName(dtype), formatDims(catalog.shape(t)),
                   bytesText(catalog.bytes(t)));
        if (!note.empty()) fmt::print(stderr, "note: {}\n", note);
    }
    return 0;
}

}  // namespace

void addExtract(CLI::App& app, Context& context) {
    CLI::App* verb = app.add_subcommand(
        "extract", "One tensor into a .npy, .safetensors or raw file (by the file's ending)");
    verb->footer("Example:\n  shardscope extract /checkpoints/step-1000 model.embed.weight embed.npy");
    auto options = std::make_shared<ExtractOptions>();
    verb->add_option("path", options->path, "Checkpoint: a directory or a file")
        ->required()
        ->type_name("PATH");
    verb->add_option("tensor", options->tensor, "Full name of the tensor")->required()->type_name("TENSOR");
    verb->add_option("file", options->file,
                     "Destination: .npy, .safetensors, or anything else for raw little-endian bytes")
        ->required()
        ->type_name("FILE");
    verb->add_flag("--overwrite", options->overwrite, "Replace an existing file");
    addCommon(*verb, context, true);
    verb->callback(
        [&context, options] { context.verb = [&context, options] { return extract(context, *options); }; });
}

}  // namespace shardscope::cli
