// What a reader says of a checkpoint, as lines: a test states a catalog piece by piece, and what is wrong is
// one line.
//
//     model.w float32 [6, 6] parameter
//       rank 1 [0:3, 3:6] elements 2..5: model_1.pt 3200+180 -> 3264+12 every [6, 1]
//     error file.missing model_2.pt
//
// Bytes are the offset and length of the stored entry, then those from the first element to the last, as
// Reader::locate() finds them; `every` gives strides other than those of the box's own row-major order.
#pragma once

#include <QStringList>
#include <string>

#include <fnmatch.h>

#include "formats/format.h"

namespace shardscope::test {

inline std::string range(uint64_t offset, uint64_t length) {
    return std::to_string(offset) + "+" + std::to_string(length);
}

inline std::string elementsOf(const Reader& reader, ChunkId chunk) {
    const auto extent = reader.locate(chunk);
    if (!extent.ok()) return extent.error().location.rule;
    std::string out = range(extent->offset, extent->length);
    if (!extent->strides.empty()) out += " every " + formatDims(extent->strides);
    if (extent->storedAs) out += " as " + std::string(dtypeName(*extent->storedAs));
    return out;
}

inline std::string lineOf(const Reader& reader, const ChunkInfo& chunk) {
    std::string out = "  ";
    if (chunk.rank != kNone) out += "rank " + std::to_string(chunk.rank) + " ";
    out += formatBox(chunk.offsets, chunk.lengths);
    if (chunk.flat)
        out += " elements " + std::to_string(chunk.flat->start) + ".." + std::to_string(chunk.flat->stop);
    out += ": " + reader.catalog().files()[chunk.file].path + " " + range(chunk.offset, chunk.length);
    return out + " -> " + elementsOf(reader, chunk.id);
}

inline std::string lineOf(const Note& note) {
    std::string out = std::string(severityName(note.severity)) + " " + note.rule;
    for (const std::string& where : {note.file, note.tensor})
        if (!where.empty()) out += " " + where;
    return out;
}

// The tensors whose names fit a shell pattern, then all notes.
inline QStringList catalogLines(const Reader& reader, const char* names) {
    const Catalog& catalog = reader.catalog();
    QStringList lines;
    const auto add = [&](const std::string& line) { lines.push_back(QString::fromStdString(line)); };
    for (TensorId t = 0; t < catalog.tensorCount(); ++t) {
        const std::string name(catalog.name(t));
        if (fnmatch(names, name.c_str(), FNM_EXTMATCH) != 0) continue;
        add(name + " " + std::string(dtypeName(catalog.dtype(t))) + " " + formatDims(catalog.shape(t)) + " " +
            std::string(roleName(catalog.role(t))));
        for (ChunkId c = catalog.firstChunk(t); c < catalog.endChunk(t); ++c)
            add(lineOf(reader, catalog.chunk(t, c)));
    }
    for (const Note& note : catalog.notes())
        add(lineOf(note));
    return lines;
}
inline QStringList catalogLines(const Result<std::unique_ptr<Reader>>& reader, const char* names) {
    return reader.ok() ? catalogLines(**reader, names)
                       : QStringList{QString::fromStdString("refused: " + describe(reader.error()))};
}

// The lines of a raw string that begins with a line break, as it does when the first line stands below it.
inline QStringList stated(const char* text) {
    return QString(text).trimmed().split('\n');
}

}  // namespace shardscope::test
