#include "answers/extraction.h"

#include <algorithm>

#include <fmt/format.h>

#include "answers/documents.h"
#include "engine/masters.h"
#include "engine/run_conversion.h"
#include "engine/whole_file.h"

namespace shardscope {
namespace {

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

// A conversion of this tensor alone.
Status writeSafetensors(const Access& access, const Checkpoint& checkpoint, const ExtractRequest& request,
                        bool masters) {
    ConversionRequest settings;
    settings.format = "safetensors";
    settings.select = {exactly(request.tensor)};
    settings.overwrite = request.overwrite;
    settings.takesParts = true;
    settings.masterWeights = masters ? MasterWeights::use : MasterWeights::automatic;
    static_cast<WorkLimits&>(settings) = access;
    SHARDSCOPE_ASSIGN(const PreparedConversion prepared,
                      prepareConversion(checkpoint, request.file, settings, access.stop));
    if (prepared.plan.tensors == 0 && !prepared.plan.leftOut.empty())
        return makeError(ErrorCode::impossible, prepared.plan.leftOut[0].why).ofTensor(request.tensor);
    auto report = runPrepared(prepared, settings, nullptr, access.stop);
    if (!report.ok()) return std::move(report).error();
    return {};
}

// As .npy, or raw. Returns what has to be said of it.
Result<std::string> writeElements(const Access& access, const Checkpoint& checkpoint, TensorId t,
                                  const ExtractRequest& request) {
    const Catalog& catalog = checkpoint.catalog();
    const DType dtype = catalog.dtype(t);
    std::string header, note;
    if (request.file.ends_with(".npy")) {
        if (!dtypeIsWholeBytes(dtype))
            return makeError(ErrorCode::impossible,
                             fmt::format("{} has no place in a .npy file", dtypeName(dtype)))
                .ofTensor(request.tensor)
                .withHint("write .safetensors or raw bytes");
        bool rawBits = false;
        const std::string descr = numpyDescr(dtype, rawBits);
        if (rawBits)
            note = fmt::format("NumPy has no {}: the file holds its bits as {}", dtypeName(dtype), descr);
        header = numpyHeader(descr, catalog.shape(t));
    }
    Work work(access, catalog.memoryBytes());
    SHARDSCOPE_TRY(work.start());
    SHARDSCOPE_TRY(writeRaw(checkpoint, t, header, request.file, request.overwrite, work.resources()));
    return note;
}

}  // namespace

Result<Extracted> extractTensor(const Access& access, const Checkpoint& checkpoint,
                                const ExtractRequest& request) {
    SHARDSCOPE_TRY(checkOutside(request.file, checkpoint.path));
    const Catalog& catalog = checkpoint.catalog();
    Extracted done;
    SHARDSCOPE_ASSIGN(done.tensor, findTensor(catalog, request.tensor, checkpoint.path));
    const bool masters =
        std::ranges::count(access.own, std::pair<std::string, std::string>("--master-weights", "use"));
    if (const auto known = masters ? mastersOf(catalog) : std::vector<TensorId>();
        !known.empty() && known[done.tensor] != kNone)
        done.tensor = known[done.tensor];
    if (request.file.ends_with(".safetensors")) {
        SHARDSCOPE_TRY(writeSafetensors(access, checkpoint, request, masters));
    } else {
        SHARDSCOPE_ASSIGN(done.note, writeElements(access, checkpoint, done.tensor, request));
    }
    return done;
}

Json extractJson(const Catalog& catalog, const ExtractRequest& request, const Extracted& done) {
    return {{"schema", "shardscope.extract/1"},
            {"file", request.file},
            {"dtype", dtypeName(catalog.dtype(done.tensor))},
            {"shape", dimsJson(catalog.shape(done.tensor))},
            {"note", done.note}};
}

}  // namespace shardscope
