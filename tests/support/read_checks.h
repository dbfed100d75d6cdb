// What tests of readers do with a checkpoint: digests of its tensors and validation.
#pragma once

#include <QtTest>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "support/damaged_copy.h"

namespace shardscope::test {

struct Machine {
    ThreadPool pool{2};
    MemoryBudget memory{uint64_t{64} << 20};
    Resources resources;
    Machine() {
        resources.pool = &pool;
        resources.memory = &memory;
    }
};
inline Machine& machine() {
    static Machine m;
    return m;
}

inline std::map<std::string, std::string> digests(const Reader& reader) {
    const Catalog& catalog = reader.catalog();
    std::vector<TensorId> ids;
    std::map<std::string, std::string> out;
    std::map<TensorId, std::unique_ptr<StreamDigest>> open;
    for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
        ids.push_back(t);
        open[t] = makeSha256();
    }
    ScanOptions options;
    options.ordered = true;
    const Status scanned =
        scanTensors(reader, ids, options, machine().resources, [&](const TileView& tile) -> Status {
            open.at(tile.tensor)->update(tile.bytes);
            return {};
        });
    if (!scanned.ok()) qWarning("%s", describe(scanned.error()).c_str());
    for (auto& [t, digest] : open)
        out[std::string(catalog.name(t))] = scanned.ok() ? digest->hex() : "";
    return out;
}

inline std::string text(const ValidationReport& report) {
    std::string out;
    for (const Finding& f : report.findings) {
        out += "\n  " + f.rule + " " + std::string(severityName(f.severity)) + ": " + f.message + " [" +
               f.cause + "]";
        for (const FindingExample& e : f.examples)
            out += "\n      " + e.tensor + " " + e.file + " " + e.detail;
    }
    return out;
}

inline ValidationReport validated(const Reader& reader, ValidateLevel level) {
    ValidateOptions options;
    options.level = level;
    auto report = validateCheckpoint(reader, options, machine().resources);
    if (!report.ok()) qFatal("%s", describe(report.error()).c_str());
    return std::move(report).value();
}

// Everything a user can do with an open checkpoint, on damaged ones: errors are fine, nothing else is.
inline void exercise(const Reader& reader) {
    const Catalog& catalog = reader.catalog();
    for (ChunkId c = 0; c < catalog.chunkCount(); ++c) {
        const auto extent = reader.locate(c);
        if (!extent.ok()) continue;
        QVERIFY(extent->offset <= extent->file->size());
        QVERIFY(extent->length <= extent->file->size() - extent->offset);
    }
    for (ObjectId o = 0; o < catalog.objects().size(); ++o)
        (void)reader.objectValue(o);
    (void)validated(reader, ValidateLevel::files);
}

}  // namespace shardscope::test
