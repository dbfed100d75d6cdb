#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "answers/documents.h"
#include "answers/rank_shares.h"
#include "base/units.h"
#include "cli/application.h"
#include "cli/one_of.h"
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

// Rows and what a rank holds of them; of all ranks, what there is.
struct Chosen {
    std::vector<TensorId> ids;
    std::vector<RankShare> held;  // with --rank, by position in `ids`
    RankShare sum;                // of these, an alias not counted again

    uint64_t bytes(const Catalog& catalog, size_t i) const {
        return held.empty() ? catalog.bytes(ids[i]) : held[i].bytes;
    }
};

Result<Chosen> chosenTensors(const Catalog& catalog, const LsOptions& options) {
    SHARDSCOPE_ASSIGN(const NamePattern pattern, NamePattern::parse(options.pattern));
    const auto rank = static_cast<uint32_t>(options.rank);
    if (options.rank >= 0) SHARDSCOPE_TRY(checkRank(catalog, rank));
    Chosen chosen;
    std::vector<TensorId>& ids = chosen.ids;
    std::map<TensorId, RankShare> held;
    for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
        if (!pattern.matches(catalog.name(t))) continue;
        if (options.rank >= 0) {
            const RankShare share = shareOf(catalog, t, rank);
            if (share.chunks == 0) continue;
            held.emplace(t, share);
        }
        ids.push_back(t);
    }
    const auto bytes = [&](TensorId t) { return options.rank < 0 ? catalog.bytes(t) : held.at(t).bytes; };
    const auto by = [&](auto key) {
        std::stable_sort(ids.begin(), ids.end(), [&](TensorId a, TensorId b) { return key(a) < key(b); });
    };
    if (options.sort == "name") by([&](TensorId t) { return catalog.name(t); });
    if (options.sort == "bytes") by([&](TensorId t) { return -static_cast<int64_t>(bytes(t)); });
    if (options.sort == "dtype") by([&](TensorId t) { return dtypeName(catalog.dtype(t)); });
    if (options.sort == "chunks")
        by([&](TensorId t) { return -static_cast<int64_t>(catalog.endChunk(t) - catalog.firstChunk(t)); });
    for (const TensorId t : ids) {
        if (options.rank < 0) continue;
        const RankShare& share = chosen.held.emplace_back(held.at(t));
        if (catalog.aliasOf(t) != kNone && held.contains(catalog.aliasOf(t))) continue;
        ++chosen.sum.tensors;
        chosen.sum.chunks += share.chunks;
        chosen.sum.bytes += share.bytes;
    }
    return chosen;
}

// Written piece by piece: a million chunks as one document in memory would take gigabytes.
Result<int> printLsJson(const Checkpoint& checkpoint, const LsOptions& options, const Chosen& chosen) {
    const Catalog& catalog = checkpoint.catalog();
    const std::vector<TensorId>& ids = chosen.ids;
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
        if (options.rank >= 0) tensor["rank_bytes"] = chosen.held[i].bytes;
        quantized.describe(tensor, ids[i]);
        if (options.chunks && options.rank >= 0) {
            auto& chunks = tensor["chunks"];
            chunks.erase(std::remove_if(chunks.begin(), chunks.end(),
                                        [&](const Json& c) {
                                            return (c["rank"].is_null() ? 0 : c["rank"].get<int64_t>()) !=
                                                   options.rank;
                                        }),
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
    out += "]";
    if (options.rank >= 0)
        out += fmt::format(R"(,"rank":{{"rank":{},"tensors":{},"chunks":{},"bytes":{}}})", options.rank,
                           chosen.sum.tensors, chosen.sum.chunks, chosen.sum.bytes);
    out += "}\n";
    flush();
    return 0;
}

// With --rank: the bytes and chunks of that rank, and beside them the whole tensor's bytes.
Table tensorTable(const Checkpoint& checkpoint, const Chosen& chosen, bool csv) {
    const Catalog& catalog = checkpoint.catalog();
    const QuantizedParts quantized(checkpoint);
    using A = Table::Align;
    const bool ofRank = !chosen.held.empty();
    std::vector<std::pair<std::string, A>> columns{{"name", A::left},    {"dtype", A::left},
                                                   {"shape", A::left},   {"bytes", A::right},
                                                   {"chunks", A::right}, {"role", A::left}};
    if (ofRank) columns.insert(columns.begin() + 4, {"of", A::right});
    Table table(std::move(columns));
    const auto bytesIn = [&](uint64_t bytes) { return csv ? std::to_string(bytes) : bytesText(bytes); };
    for (size_t i = 0; i < chosen.ids.size(); ++i) {
        const TensorId t = chosen.ids[i];
        std::string role(roleName(catalog.role(t)));
        if (catalog.aliasOf(t) != kNone)
            role += fmt::format(", same as {}", printable(catalog.name(catalog.aliasOf(t))));
        if (const std::string part = quantized.word(t); !part.empty()) role += ", " + part;
        const uint64_t chunks = ofRank ? chosen.held[i].chunks : catalog.endChunk(t) - catalog.firstChunk(t);
        std::vector<std::string> row{csv ? std::string(catalog.name(t)) : printable(catalog.name(t)),
                                     std::string(dtypeName(catalog.dtype(t))),
                                     formatDims(catalog.shape(t)),
                                     bytesIn(chosen.bytes(catalog, i)),
                                     std::to_string(chunks),
                                     role};
        if (ofRank) row.insert(row.begin() + 4, bytesIn(catalog.bytes(t)));
        table.add(std::move(row));
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
            if (rank >= 0 && (chunk.rank == kNone ? 0 : chunk.rank) != static_cast<uint32_t>(rank)) continue;
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
    auto found = chosenTensors(catalog, options);
    if (!found.ok()) return std::move(found).error().inFile(options.path);
    const Chosen chosen = std::move(found).value();
    if (context.json) return printLsJson(checkpoint, options, chosen);

    // Each flag asks for a table of its own; without any it is that of the tensors.
    const Style style{context.colored()};
    bool first = true;
    const auto print = [&](const Table& table) {
        if (!first) fmt::print("\n");
        first = false;
        options.csv ? table.printCsv(stdout) : table.print(stdout, style);
    };
    if (options.chunks) print(chunkTable(catalog, chosen.ids, options.rank, options.csv));
    if (options.objects) {
        SHARDSCOPE_ASSIGN(const Table table, objectTable(checkpoint, options));
        print(table);
    }
    if (options.files) print(fileTable(catalog, options));
    if (first) print(tensorTable(checkpoint, chosen, options.csv));
    if (options.rank >= 0 && !options.csv)
        fmt::print("\nrank {} holds {} in {} of {}\n", options.rank, bytesText(chosen.sum.bytes),
                   counted(chosen.sum.chunks, "chunk"), counted(chosen.sum.tensors, "tensor"));
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
    verb->add_option("--rank", options->rank, "Only what this rank holds, with its bytes and their sum")
        ->check(CLI::Range(int64_t{0}, int64_t{UINT32_MAX} - 1).description(""))
        ->type_name("N");
    verb->add_option("--sort", options->sort, "position (as stored), name, bytes, dtype or chunks")
        ->check(oneOf({"position", "name", "bytes", "dtype", "chunks"}))
        ->type_name("KEY");
    verb->add_flag("--csv", options->csv, "Comma-separated values");
    addCommon(*verb, context, false);
    verb->callback(
        [&context, options] { context.verb = [&context, options] { return ls(context, *options); }; });
}

}  // namespace shardscope::cli
