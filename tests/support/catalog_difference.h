// Whether two catalogs say the same.
#pragma once

#include <algorithm>
#include <string>

#include "model/catalog.h"

namespace shardscope::test {

// What two catalogs differ in; empty when they say the same.
inline std::string difference(const Catalog& a, const Catalog& b) {
    if (a.format() != b.format() || a.variant() != b.variant() || a.writer() != b.writer()) return "identity";
    if (a.tensorCount() != b.tensorCount() || a.chunkCount() != b.chunkCount()) return "counts";
    for (TensorId t = 0; t < a.tensorCount(); ++t) {
        const std::string name(a.name(t));
        if (name != b.name(t) || a.path(t) != b.path(t)) return name + ": name";
        if (a.dtype(t) != b.dtype(t) || !std::ranges::equal(a.shape(t), b.shape(t))) return name + ": shape";
        if (a.role(t) != b.role(t) || a.aliasOf(t) != b.aliasOf(t) || a.special(t) != b.special(t))
            return name + ": role, alias or special";
        if (a.firstChunk(t) != b.firstChunk(t) || a.endChunk(t) != b.endChunk(t)) return name + ": chunks";
        for (ChunkId c = a.firstChunk(t); c < a.endChunk(t); ++c) {
            const ChunkInfo x = a.chunk(t, c), y = b.chunk(t, c);
            if (x.rank != y.rank || x.file != y.file || x.offset != y.offset || x.length != y.length ||
                x.flat != y.flat || !std::ranges::equal(x.offsets, y.offsets) ||
                !std::ranges::equal(x.lengths, y.lengths))
                return name + ": a chunk";
        }
    }
    if (a.specials().size() != b.specials().size()) return "specials";
    for (size_t i = 0; i < a.specials().size(); ++i) {
        const SpecialTensor &x = a.specials()[i], &y = b.specials()[i];
        if (x.name != y.name || x.path != y.path || x.kind != y.kind || x.dtype != y.dtype ||
            x.shape != y.shape || x.detail != y.detail)
            return "special " + x.name;
    }
    if (a.files().size() != b.files().size()) return "files";
    for (size_t i = 0; i < a.files().size(); ++i) {
        const FileInfo &x = a.files()[i], &y = b.files()[i];
        if (x.path != y.path || x.size != y.size || x.state != y.state || x.metadata != y.metadata ||
            x.rank != y.rank || x.referenced != y.referenced)
            return "file " + x.path;
    }
    if (a.objects().size() != b.objects().size()) return "objects";
    for (size_t i = 0; i < a.objects().size(); ++i) {
        const ObjectInfo &x = a.objects()[i], &y = b.objects()[i];
        if (x.name != y.name || x.path != y.path || x.rank != y.rank || x.file != y.file ||
            x.offset != y.offset || x.length != y.length)
            return "object " + x.name;
    }
    if (a.mesh().has_value() != b.mesh().has_value()) return "mesh";
    if (a.mesh() && (!(*a.mesh() == *b.mesh()) || a.mesh()->source != b.mesh()->source ||
                     a.mesh()->evidence != b.mesh()->evidence))
        return "mesh";
    if (a.notes().size() != b.notes().size()) return "notes";
    for (size_t i = 0; i < a.notes().size(); ++i) {
        const Note &x = a.notes()[i], &y = b.notes()[i];
        if (x.rule != y.rule || x.severity != y.severity || x.message != y.message || x.file != y.file ||
            x.tensor != y.tensor || x.offset != y.offset)
            return "note " + x.message;
    }
    if (a.rankCount() != b.rankCount() || a.totalBytes() != b.totalBytes() ||
        a.totalElements() != b.totalElements() ||
        a.elementsOf(Role::parameter) != b.elementsOf(Role::parameter))
        return "totals";
    return {};
}

}  // namespace shardscope::test
