#include "ui/models/chunk_table_model.h"

#include <algorithm>
#include <numeric>

#include "survey/facts.h"
#include "ui/models/texts.h"

namespace shardscope::ui {

ChunkTableModel::ChunkTableModel(Session& session, QObject* parent)
    : TextTableModel({}, parent), session_(session), checkpoint_(session.checkpoint()) {
    setContent(0, columns());
    connect(&session, &Session::stateChanged, this, [this] {
        if (checkpoint_ != session_.checkpoint()) clear();
    });
    connect(&session, &Session::factsChanged, this, [this] { refresh(); });
}

std::vector<TextColumn> ChunkTableModel::columns() {
    const auto byPlace = [this](size_t i) { return uint64_t{chunks_[i]}; };
    const auto byRank = [this](size_t i) { return uint64_t{info(i).rank}; };
    return {
        // Chunks of a tensor are neighbors, in the order of the metadata.
        {{tr("Tensor")},
         [this](size_t i) { return toQString(checkpoint_->catalog().name(info(i).tensor)); },
         byPlace},
        {{tr("Rank"), true},
         [this](size_t i) {
             return info(i).rank == kNone ? QStringLiteral("–") : QString::number(info(i).rank);
         },
         byRank},
        {{tr("Place")},
         [this](size_t i) {
             return info(i).rank == kNone || !facts() ? QString()
                                                      : toQString(rankLabel(facts()->mesh, info(i).rank));
         },
         byRank},
        {{tr("Part of the tensor")}, [this](size_t i) { return toQString(chunkText(info(i))); }, byPlace},
        sizeColumn(tr("Size"), [this](size_t i) { return elementBytes(checkpoint_->catalog(), info(i)); }),
        {{tr("File")},
         [this](size_t i) {
             return info(i).file == kNone ? QString()
                                          : toQString(checkpoint_->catalog().files()[info(i).file].path);
         },
         [this](size_t i) { return uint64_t{info(i).file}; }},
        {{tr("Bytes in file"), true},
         [this](size_t i) {
             const ChunkInfo of = info(i);
             return of.file == kNone ? QString() : rangeText(of.offset, of.length);
         },
         [this](size_t i) { return info(i).offset; }},
        {{tr("State")},
         [this](size_t i) {
             return facts() ? toQString(chunkStateText(*facts(), checkpoint_->catalog(), chunks_[i]))
                            : QStringLiteral("…");
         },
         [this](size_t i) { return facts() ? static_cast<uint64_t>(facts()->chunkHealth[chunks_[i]]) : 0; }}};
}

ChunkInfo ChunkTableModel::info(size_t at) const {
    const Catalog& catalog = checkpoint_->catalog();
    const ChunkId c = chunks_[at];
    if (tensor_ >= catalog.tensorCount() || c < catalog.firstChunk(tensor_) || c >= catalog.endChunk(tensor_))
        tensor_ = catalog.tensorOf(c);
    return catalog.chunk(tensor_, c);
}

const Facts* ChunkTableModel::facts() const {
    return session_.checkpoint() == checkpoint_ ? session_.facts().get() : nullptr;
}

void ChunkTableModel::setChunks(std::vector<ChunkId> chunks) {
    checkpoint_ = session_.checkpoint();
    chunks_ = std::move(chunks);
    setRows(chunks_.size());
}

void ChunkTableModel::setTensor(TensorId t) {
    std::vector<ChunkId> chunks;
    if (session_.checkpoint() && t != kNone) {
        const Catalog& catalog = session_.catalog();
        chunks.resize(catalog.endChunk(t) - catalog.firstChunk(t));
        std::iota(chunks.begin(), chunks.end(), catalog.firstChunk(t));
    }
    setChunks(std::move(chunks));
}

void ChunkTableModel::setAll() {
    std::vector<ChunkId> chunks(session_.checkpoint() ? session_.catalog().chunkCount() : 0);
    std::iota(chunks.begin(), chunks.end(), 0U);
    setChunks(std::move(chunks));
}

int ChunkTableModel::rowOf(ChunkId chunk) const {
    const auto it = std::find(chunks_.begin(), chunks_.end(), chunk);
    return it == chunks_.end() ? -1 : TextTableModel::rowOf(static_cast<int>(it - chunks_.begin()));
}

QVariant ChunkTableModel::data(const QModelIndex& index, int role) const {
    const QVariant said = TextTableModel::data(index, role);
    if (role != Qt::ToolTipRole || index.column() != health || !facts()) return said;
    const std::string note = facts()->noteOf(chunk(index.row()));
    return note.empty() ? said : QString(said.toString() + ": " + toQString(note).toHtmlEscaped());
}

}  // namespace shardscope::ui
