#include "ui/models/chunk_table_model.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "survey/facts.h"
#include "ui/models/texts.h"

namespace shardscope::ui {

namespace {

using Keyed = std::pair<uint64_t, ChunkId>;

// Digit by digit from the lowest, stable; digits that all keys share cost one look. A comparison sort of a
// million rows takes a tenth of a second longer than people wait gladly.
void sortByKey(std::vector<Keyed>& keys) {
    constexpr int kBits = 16;
    constexpr uint64_t kMask = (uint64_t{1} << kBits) - 1;
    uint64_t all = ~uint64_t{0}, any = 0;
    for (const Keyed& k : keys) {
        all &= k.first;
        any |= k.first;
    }
    std::vector<Keyed> other(keys.size());
    std::vector<size_t> at(size_t{1} << kBits);
    for (int shift = 0; shift < 64; shift += kBits) {
        if (((all ^ any) >> shift & kMask) == 0) continue;
        std::fill(at.begin(), at.end(), 0);
        for (const Keyed& k : keys)
            ++at[k.first >> shift & kMask];
        size_t next = 0;
        for (size_t& start : at)
            next += std::exchange(start, next);
        for (const Keyed& k : keys)
            other[at[k.first >> shift & kMask]++] = k;
        keys.swap(other);
    }
}

}  // namespace

ChunkTableModel::ChunkTableModel(Session& session, QObject* parent)
    : Columns({{tr("Tensor")},
               {tr("Rank"), true},
               {tr("Place")},
               {tr("Part of the tensor")},
               {tr("Size"), true},
               {tr("File")},
               {tr("Bytes in file"), true},
               {tr("State")}},
              parent),
      session_(session),
      checkpoint_(session.checkpoint()) {
    connect(&session, &Session::stateChanged, this, [this] {
        if (checkpoint_ == session_.checkpoint()) return;
        clear();
    });
    connect(&session, &Session::factsChanged, this, [this] {
        if (!rows_.empty()) emit dataChanged(index(0, health), index(rowCount() - 1, health));
    });
}

void ChunkTableModel::setChunks(std::vector<ChunkId> chunks) {
    beginResetModel();
    checkpoint_ = session_.checkpoint();
    given_ = std::move(chunks);
    rows_ = given_;
    endResetModel();
    if (sortColumn_ >= 0 && !rows_.empty()) sort(sortColumn_, sortOrder_);
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
    const auto it = std::find(rows_.begin(), rows_.end(), chunk);
    return it == rows_.end() ? -1 : static_cast<int>(it - rows_.begin());
}

int ChunkTableModel::rowCount(const QModelIndex& parent) const {
    return parent.isValid() ? 0 : static_cast<int>(rows_.size());
}

QString ChunkTableModel::text(int row, int column) const {
    const Catalog& catalog = checkpoint_->catalog();
    const ChunkInfo info = catalog.chunk(rows_[static_cast<size_t>(row)]);
    switch (column) {
        case tensor:
            return toQString(catalog.name(info.tensor));
        case rank:
            return info.rank == kNone ? QStringLiteral("–") : QString::number(info.rank);
        case coordinates:
            return info.rank == kNone || !session_.facts()
                       ? QString()
                       : toQString(rankLabel(session_.facts()->mesh, info.rank));
        case box:
            return toQString(chunkText(info));
        case bytes:
            return sizeText(elementBytes(catalog, info));
        case file:
            return info.file == kNone ? QString() : toQString(catalog.files()[info.file].path);
        case range:
            return info.file == kNone
                       ? QString()
                       : QStringLiteral("%1–%2").arg(info.offset).arg(info.offset + info.length);
        case health:
            return session_.facts() && session_.checkpoint() == checkpoint_
                       ? toQString(chunkStateText(*session_.facts(), catalog, info.id))
                       : QStringLiteral("…");
    }
    return {};
}

QVariant ChunkTableModel::data(const QModelIndex& index, int role) const {
    if (!index.isValid() || !checkpoint_) return {};
    switch (role) {
        case Qt::DisplayRole:
            return text(index.row(), index.column());
        case Qt::ToolTipRole: {
            QString said = text(index.row(), index.column());
            if (index.column() == health && session_.facts() && session_.checkpoint() == checkpoint_) {
                const std::string note = session_.facts()->noteOf(rows_[static_cast<size_t>(index.row())]);
                if (!note.empty()) said += ": " + toQString(note);
            }
            return said;
        }
        case Qt::TextAlignmentRole:
            return alignment(index.column());
        case ChunkRole:
            return rows_[static_cast<size_t>(index.row())];
        case HealthRole:
            return static_cast<int>(
                session_.facts() && session_.checkpoint() == checkpoint_
                    ? session_.facts()->chunkHealth[rows_[static_cast<size_t>(index.row())]]
                    : Health::unread);
        default:
            return {};
    }
}

void ChunkTableModel::sort(int column, Qt::SortOrder order) {
    sortColumn_ = column;
    sortOrder_ = order;
    if (column < 0 || rows_.empty() || !checkpoint_) return;
    const Catalog& catalog = checkpoint_->catalog();
    // One number a row; equal ones stay as they were given.
    std::vector<Keyed> keys;
    keys.reserve(rows_.size());
    TensorId t = 0;
    for (const ChunkId c : given_) {
        if (!(catalog.firstChunk(t) <= c && c < catalog.endChunk(t))) t = catalog.tensorOf(c);
        const ChunkInfo info = catalog.chunk(t, c);
        uint64_t key = 0;
        switch (column) {
            case tensor:
            case box:
                key = c;
                break;  // chunks of a tensor are neighbors, in the order of the metadata
            case rank:
            case coordinates:
                key = info.rank;
                break;
            case bytes:
                key = elementBytes(catalog, info);
                break;
            case file:
                key = info.file;
                break;
            case range:
                key = info.offset;
                break;
            case health:
                key = session_.facts() ? static_cast<uint64_t>(session_.facts()->chunkHealth[c]) : 0;
                break;
        }
        keys.emplace_back(key, c);
    }
    emit layoutAboutToBeChanged({}, QAbstractItemModel::VerticalSortHint);
    if (order == Qt::DescendingOrder) {
        for (auto& [key, chunk] : keys)
            key = ~key;
    }
    sortByKey(keys);
    const QModelIndexList old = persistentIndexList();
    std::vector<ChunkId> held;
    for (const QModelIndex& index : old)
        held.push_back(rows_[static_cast<size_t>(index.row())]);
    for (size_t i = 0; i < keys.size(); ++i)
        rows_[i] = keys[i].second;
    QModelIndexList moved;
    for (qsizetype i = 0; i < old.size(); ++i)
        moved.append(index(rowOf(held[static_cast<size_t>(i)]), old[i].column()));
    changePersistentIndexList(old, moved);
    emit layoutChanged({}, QAbstractItemModel::VerticalSortHint);
}

}  // namespace shardscope::ui
