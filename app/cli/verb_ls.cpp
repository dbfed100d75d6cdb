#include <algorithm>

#include <fmt/format.h>

#include "answers/documents.h"
#include "cli/application.h"
#include "cli/text.h"
#include "survey/file_state.h"

namespace shardscope::cli {
namespace {

struct LsOptions {
    std::string path;
    std::string pattern = "*";
    bool chunks = false, files = false, objects = false, csv = false;
    int64_t rank = -1;
    std::string sort = "position";
};

bool onRank(const Catalog& catalog, TensorId t, int64_t rank) {
    for (ChunkId c = catalog.firstChunk(t); c < catalog.endChunk(t); ++c) {
        if (catalog.chunk(t, c).rank == static_cast<uint32_t>(rank)) return true;
    }
    return false;
}

Result<std::vector<TensorId>> chosenTensors(const Catalog& catalog, const LsOptions& options) {
    SHARDSCOPE_ASSIGN(const NamePattern pattern, NamePattern::parse(options.pattern));
    std::vector<TensorId> ids;
    for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
        if (pattern.matches(catalog.name(t)) && (options.rank < 0 || onRank(catalog, t, options.rank)))
            ids.push_back(t);
    }
    const auto by = [&](auto key) {
        std::stable_sort(ids.begin(), ids.end(), [&](TensorId a, TensorId b) { return key(a) < key(b); });
    };
    if (options.sort == "name") by([&](TensorId t) { return catalog.name(t); });
    if (options.sort == "bytes") by([&](TensorId t) { return -static_cast<int64_t>(catalog.bytes(t)); });
    if (options.sort == "dtype") by([&](TensorId t) { return dtypeName(catalog.dtype(t)); });
    if (options.sort == "chunks")
        by([&](TensorId t) { return -static_cast<int64_t>(catalog.endChunk(t) - catalog.firstChunk(t)); });
    return ids;
}

// Written piece by piece: a million chunks as one document in memory would take gigabytes.
Result<int> printLsJson(const Checkpoint& checkpoint, const LsOptions& options,
                        const std::vector<TensorId>& ids) {
    const Catalog& catalog = checkpoint.catalog();
    SHARDSCOPE_ASSIGN(const NamePattern pattern, NamePattern::parse(options.pattern));
    std::string out = "{\"schema\":\"shardscope.ls/1\",\"tensors\":[";
    const auto flush = [&out] {
        std::fwrite(out.data(), 1, out.size(), stdout);
        out.clear();
    };
    // A name may be as large as a header.
    const auto add = [&](const Json& json) {
        constexpr size_t kMost = size_t{1} << 20;
        const std::string text = dump(json);
        if (out.size() + text.size() > kMost) flush();
        if (text.size() > kMost)
            std::fwrite(text.data(), 1, text.size(), stdout);
        else
            out += text;
    };
    const QuantizedParts quantized(checkpoint);
    for (size_t i = 0; i < ids.size(); ++i) {
        if (i) out += ',';
        Json tensor = tensorJson(catalog, ids[i], options.chunks);
        quantized.describe(tensor, ids[i]);
        if (options.chunks && options.rank >= 0) {
            auto& chunks = tensor["chunks"];
            chunks.erase(std::remove_if(chunks.begin(), chunks.end(),
                                        [&](const Json& c) { return c["rank"] != options.rank; }),
                         chunks.end());
        }
        add(tensor);
    }
    out += "],\"objects\":[";
    bool first = true;
    for (ObjectId o = 0; o < catalog.objects().size(); ++o) {
        const ObjectInfo& object = catalog.objects()[o];
        if (!pattern.matches(object.name) ||
            (options.rank >= 0 && object.rank != static_cast<uint32_t>(options.rank)))
            continue;
        const Json json = objectJson(checkpoint, o);
        if (!first) out += ',';
        first = false;
        add(json);
    }
    out += "],\"specials\":[";
    first = true;
    for (const SpecialTensor& special : catalog.specials()) {
        Json json{{"name", special.name},
                  {"path", pathJson(special.path)},
                  {"kind", special.kind},
                  {"dtype", special.dtype},
                  {"shape", dimsJson(special.shape)}};
        json["detail"] =
            special.detail.empty() ? Json::object() : Json::parse(special.detail, nullptr, false);
        if (!first) out += ',';
        first = false;
        add(json);
    }
    out += "],\"files\":[";
    const std::vector<uint64_t> used = usedBytes(catalog);
    for (FileId f = 0; f < catalog.files().size(); ++f) {
        if (f) out += ',';
        add(fileJson(catalog, f, used[f]));
    }
    out += "]}\n";
    flush();
    return 0;
}

Table tensorTable(const Checkpoint& checkpoint, const std::vector<TensorId>& ids, bool csv) {
    const Catalog& catalog = checkpoint.catalog();
    const QuantizedParts quantized(checkpoint);
    using A = Table::Align;
    Table table({{"name", A::left},
                 {"dtype", A::left},
                 {"shape", A::left},
                 {"bytes", A::right},
                 {"chunks", A::right},
                 {"role", A::left}});
    for (TensorId t : ids) {
        std::string role(roleName(catalog.role(t)));
        if (catalog.aliasOf(t) != kNone)
            role += fmt::format(", same as {}", printable(catalog.name(catalog.aliasOf(t))));
        if (const std::string part = quantized.word(t); !part.empty()) role += ", " + part;
        table.add({csv ? std::string(catalog.name(t)) : printable(catalog.name(t)),
                   std::string(dtypeName(catalog.dtype(t))), formatDims(catalog.shape(t)),
                   csv ? std::to_string(catalog.bytes(t)) : bytesText(catalog.bytes(t)),
                   std::to_string(catalog.endChunk(t) - catalog.firstChunk(t)), role});
    }
    return table;
}

Table chunkTable(const Catalog& catalog, const std::vector<TensorId>& ids, int64_t rank, bool csv) {
    using A = Table::Align;
    Table table({{"name", A::left},
                 {"rank", A::right},
                 {"box", A::left},
                 {"file", A::left},
                 {"offset", A::right},
                 {"length", A::right}});
    for (TensorId t : ids) {
        for (ChunkId c = catalog.firstChunk(t); c < catalog.endChunk(t); ++c) {
            const ChunkInfo chunk = catalog.chunk(t, c);
            if (rank >= 0 && chunk.rank != static_cast<uint32_t>(rank)) continue;
            std::string box = formatBox(chunk.offsets, chunk.lengths);
            if (chunk.flat) box += fmt::format(" elements {}..{}", chunk.flat->start, chunk.flat->stop);
            table.add({csv ? std::string(catalog.name(t)) : printable(catalog.name(t)),
                       chunk.rank == kNone ? "" : std::to_string(chunk.rank), box,
                       chunk.file == kNone ? "" : printable(catalog.files()[chunk.file].path),
                       std::to_string(chunk.offset), std::to_string(chunk.length)});
        }
    }
    return table;
}

Result<Table> objectTable(const Checkpoint& checkpoint, const LsOptions& options) {
    using A = Table::Align;
    SHARDSCOPE_ASSIGN(const NamePattern pattern, NamePattern::parse(options.pattern));
    const Catalog& catalog = checkpoint.catalog();
    Table table({{"name", A::left}, {"kind", A::left}, {"value", A::left}});
    for (ObjectId o = 0; o < catalog.objects().size(); ++o) {
        const ObjectInfo& object = catalog.objects()[o];
        if (!pattern.matches(object.name)) continue;
        const auto value = checkpoint.reader->objectValue(o);
        table.add({options.csv ? object.name : printable(object.name),
                   value.ok() ? valueKindName(*value) : "?",
                   value.ok() ? printable(valueRepr(*value, 160)) : printable(describe(value.error()))});
    }
    return table;
}

Table fileTable(const Catalog& catalog, const LsOptions& options) {
    using A = Table::Align;
    const std::vector<uint64_t> used = usedBytes(catalog);
    Table table(
        {{"file", A::left}, {"rank", A::right}, {"size", A::right}, {"used", A::right}, {"state", A::left}});
    for (FileId f = 0; f < catalog.files().size(); ++f) {
        const FileInfo& file = catalog.files()[f];
        if (options.rank >= 0 && file.rank != static_cast<uint32_t>(options.rank)) continue;
        table.add({options.csv ? file.path : printable(file.path),
                   file.rank == kNone ? "" : std::to_string(file.rank),
                   options.csv ? std::to_string(file.size) : bytesText(file.size),
                   options.csv ? std::to_string(used[f]) : bytesText(used[f]), fileStateText(file, nullptr)});
    }
    return table;
}

Result<int> ls(const Context& context, const LsOptions& options) {
    SHARDSCOPE_ASSIGN(const Checkpoint checkpoint, context.open(options.path));
    const Catalog& catalog = checkpoint.catalog();
    SHARDSCOPE_ASSIGN(const std::vector<TensorId> ids, chosenTensors(catalog, options));
    if (context.json) return printLsJson(checkpoint, options, ids);

    // Each flag asks for a table of its own; without any it is that of the tensors.
    const Style style{context.colored()};
    bool first = true;
    const auto print = [&](const Table& table) {
        if (!first) fmt::print("\n");
        first = false;
        options.csv ? table.printCsv(stdout) : table.print(stdout, style);
    };
    if (options.chunks) print(chunkTable(catalog, ids, options.rank, options.csv));
    if (options.objects) {
        SHARDSCOPE_ASSIGN(const Table table, objectTable(checkpoint, options));
        print(table);
    }
    if (options.files) print(fileTable(catalog, options));
    if (first) print(tensorTable(checkpoint, ids, options.csv));
    return 0;
}

}  // namespace

void addLs(CLI::App& app, Context& context) {
    CLI::App* verb = app.add_subcommand("ls", "Tensors as rows; or their chunks, the objects, the files");
    verb->footer(
        "Examples:\n  shardscope ls /checkpoints/step-1000 '*.attn.*' --sort bytes\n  shardscope ls "
        "/checkpoints/step-1000 --chunks --rank 3");
    auto options = std::make_shared<LsOptions>();
    verb->add_option("path", options->path, "Checkpoint: a directory, a file, or ssh://host/path")
        ->required()
        ->type_name("PATH");
    verb->add_option("glob", options->pattern,
                     "Only names that match (* any characters; re:... is a regular expression)")
        ->type_name("GLOB");
    verb->add_flag("--chunks", options->chunks, "One row for each stored chunk");
    verb->add_flag("--files", options->files, "The files, with size and bytes in use");
    verb->add_flag("--objects", options->objects, "The non-tensor entries, with their values");
    verb->add_option("--rank", options->rank, "Only what this rank holds")
        ->check(CLI::Range(int64_t{0}, int64_t{UINT32_MAX} - 1).description(""))
        ->type_name("N");
    verb->add_option("--sort", options->sort, "position (as stored), name, bytes, dtype or chunks")
        ->check(CLI::IsMember({"position", "name", "bytes", "dtype", "chunks"}).description(""))
        ->type_name("KEY");
    verb->add_flag("--csv", options->csv, "Comma-separated values");
    addCommon(*verb, context, false);
    verb->callback(
        [&context, options] { context.verb = [&context, options] { return ls(context, *options); }; });
}

}  // namespace shardscope::cli
