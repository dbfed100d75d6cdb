#include "ui/models/chunk_table_model.h"

#include <algorithm>
#include <numeric>

#include "ui/models/texts.h"

namespace shardscope::ui {

ChunkTableModel::ChunkTableModel(Session& session, QObject* parent)
    : QAbstractTableModel(parent), session_(session), checkpoint_(session.checkpoint()) {
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
    rows_ = std::move(chunks);
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

int ChunkTableModel::columnCount(const QModelIndex& parent) const {
    return parent.isValid() ? 0 : columnCountValue;
}

Qt::ItemFlags ChunkTableModel::flags(const QModelIndex& index) const {
    return index.isValid() ? Qt::ItemIsEnabled | Qt::ItemIsSelectable | Qt::ItemNeverHasChildren
                           : Qt::NoItemFlags;
}

QString ChunkTableModel::text(int row, int column) const {
    const Catalog& catalog = checkpoint_->catalog();
    const ChunkInfo info = catalog.chunk(rows_[static_cast<size_t>(row)]);
    switch (column) {
        case tensor:
            return toQString(catalog.name(info.tensor));
        case rank:
            return info.rank == kNone ? QStringLiteral("–") : QString::number(info.rank);
        case place:
            return info.rank == kNone || !session_.facts()
                       ? QString()
                       : toQString(rankLabel(session_.facts()->mesh, info.rank));
        case box:
            return toQString(chunkText(info));
        case bytes:
            return sizeText(info.length);
        case file:
            return info.file == kNone ? QString() : toQString(catalog.files()[info.file].path);
        case range:
            return info.file == kNone
                       ? QString()
                       : QStringLiteral("%1–%2").arg(info.offset).arg(info.offset + info.length);
        case health:
            return session_.facts() && session_.checkpoint() == checkpoint_
                       ? toQString(healthName(session_.facts()->chunkHealth[info.id]))
                       : QStringLiteral("…");
    }
    return {};
}

QVariant ChunkTableModel::data(const QModelIndex& index, int role) const {
    if (!index.isValid() || !checkpoint_) return {};
    switch (role) {
        case Qt::DisplayRole:
        case Qt::ToolTipRole:
            return text(index.row(), index.column());
        case Qt::TextAlignmentRole:
            if (index.column() == rank || index.column() == bytes || index.column() == range)
                return QVariant(Qt::AlignRight | Qt::AlignVCenter);
            return {};
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

QVariant ChunkTableModel::headerData(int section, Qt::Orientation orientation, int role) const {
    if (orientation != Qt::Horizontal || role != Qt::DisplayRole) return {};
    switch (section) {
        case tensor:
            return tr("Tensor");
        case rank:
            return tr("Rank");
        case place:
            return tr("Place");
        case box:
            return tr("Part of the tensor");
        case bytes:
            return tr("Size");
        case file:
            return tr("File");
        case range:
            return tr("Bytes in file");
        case health:
            return tr("State");
    }
    return {};
}

void ChunkTableModel::sort(int column, Qt::SortOrder order) {
    sortColumn_ = column;
    sortOrder_ = order;
    if (column < 0 || rows_.empty() || !checkpoint_) return;
    const Catalog& catalog = checkpoint_->catalog();
    // One number a row, then a sort of plain pairs: a million rows in some 100 ms.
    std::vector<std::pair<uint64_t, ChunkId>> keys;
    keys.reserve(rows_.size());
    TensorId t = 0;
    for (const ChunkId c : rows_) {
        if (!(catalog.firstChunk(t) <= c && c < catalog.endChunk(t))) t = catalog.tensorOf(c);
        const ChunkInfo info = catalog.chunk(t, c);
        uint64_t key = 0;
        switch (column) {
            case tensor:
            case box:
                key = c;
                break;  // chunks of a tensor are neighbours, in the order of the metadata
            case rank:
            case place:
                key = info.rank;
                break;
            case bytes:
                key = info.length;
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
    if (order == Qt::AscendingOrder) {
        std::sort(keys.begin(), keys.end());
    } else {
        std::sort(keys.begin(), keys.end(), [](const auto& a, const auto& b) {
            return a.first != b.first ? a.first > b.first : a.second < b.second;
        });
    }
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
