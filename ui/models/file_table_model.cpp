#include "ui/models/file_table_model.h"

#include <algorithm>
#include <numeric>

#include "survey/file_state.h"
#include "ui/models/texts.h"

namespace shardscope::ui {

FileTableModel::FileTableModel(Session& session, QObject* parent)
    : Columns({{tr("File")},
               {tr("State")},
               {tr("Size"), true},
               {tr("Used"), true},
               {tr("Dead bytes"), true},
               {tr("Rank"), true},
               {tr("Tensors"), true},
               {tr("Chunks"), true}},
              parent),
      session_(session) {
    connect(&session, &Session::stateChanged, this, [this] {
        if (checkpoint_ != session_.checkpoint()) reset();
    });
    connect(&session, &Session::factsChanged, this, [this] {
        if (rows_.empty()) return;
        emit dataChanged(index(0, state), index(rowCount() - 1, columnCountValue - 1));
        if (sortColumn_ > path) sort(sortColumn_, sortOrder_);
    });
    reset();
}

void FileTableModel::reset() {
    beginResetModel();
    checkpoint_ = session_.checkpoint();
    rows_.resize(checkpoint_ ? checkpoint_->catalog().files().size() : 0);
    rowOf_.resize(rows_.size());
    std::iota(rows_.begin(), rows_.end(), 0U);
    std::iota(rowOf_.begin(), rowOf_.end(), 0);
    endResetModel();
    if (sortColumn_ >= 0) sort(sortColumn_, sortOrder_);
}

const FileFacts* FileTableModel::facts(FileId file) const {
    const auto& known = session_.facts();
    return known && session_.checkpoint() == checkpoint_ && file < known->files.size() ? &known->files[file]
                                                                                       : nullptr;
}

int FileTableModel::rowOf(FileId file) const {
    return file < rowOf_.size() ? rowOf_[file] : -1;
}

FileTableModel::Totals FileTableModel::totals() const {
    Totals totals;
    for (FileId f = 0; f < rows_.size(); ++f) {
        const FileInfo& file = info(f);
        ++totals.files;
        totals.missing += file.state != FileInfo::State::present;
        totals.unreferenced += !file.referenced;
        totals.size += file.size;
        if (const FileFacts* known = facts(f)) {
            totals.used += std::min(known->used, file.size);
            totals.dead += known->dead(file.size);
        }
    }
    return totals;
}

uint64_t FileTableModel::missingTail(FileId file) const {
    const FileFacts* known = facts(file);
    return known ? shardscope::missingTail(info(file), *known) : 0;
}

Health FileTableModel::health(FileId file) const {
    return fileHealth(info(file), facts(file));
}

QString FileTableModel::stateText(FileId file) const {
    const std::string text = fileStateText(info(file), facts(file));
    return text.empty() ? QStringLiteral("…") : toQString(text);
}

QString FileTableModel::text(FileId file, int column) const {
    const FileInfo& i = info(file);
    const FileFacts* known = facts(file);
    const auto figure = [&](auto value) { return known ? numberText(value) : QStringLiteral("…"); };
    switch (column) {
        case path:
            return toQString(i.path);
        case rank:
            return i.rank == kNone ? QStringLiteral("–") : QString::number(i.rank);
        case size:
            return i.state == FileInfo::State::present ? sizeText(i.size) : QStringLiteral("–");
        case used:
            return known ? sizeText(known->used) : QStringLiteral("…");
        case dead:
            return known ? sizeText(known->dead(i.size)) : QStringLiteral("…");
        case tensors:
            return figure(known ? known->tensors : 0);
        case chunks:
            return figure(known ? known->chunks : 0);
        case state:
            return stateText(file);
    }
    return {};
}

int FileTableModel::rowCount(const QModelIndex& parent) const {
    return parent.isValid() ? 0 : static_cast<int>(rows_.size());
}

QVariant FileTableModel::data(const QModelIndex& index, int role) const {
    if (!index.isValid() || !checkpoint_) return {};
    const FileId id = file(index.row());
    switch (role) {
        case Qt::DisplayRole:
        case Qt::ToolTipRole:
            return text(id, index.column());
        case Qt::TextAlignmentRole:
            return alignment(index.column());
        case FileRole:
            return id;
        case HealthRole:
            return static_cast<int>(health(id));
        default:
            return {};
    }
}

void FileTableModel::sort(int column, Qt::SortOrder order) {
    sortColumn_ = column;
    sortOrder_ = order;
    if (rows_.empty()) return;
    emit layoutAboutToBeChanged({}, QAbstractItemModel::VerticalSortHint);
    const std::vector<FileId> before = rows_;
    std::iota(rows_.begin(), rows_.end(), 0U);
    const auto key = [&](FileId f) -> uint64_t {
        const FileFacts* known = facts(f);
        switch (column) {
            case rank:
                return info(f).rank;
            case size:
                return info(f).size;
            case used:
                return known ? known->used : 0;
            case dead:
                return known ? known->dead(info(f).size) : 0;
            case tensors:
                return known ? known->tensors : 0;
            case chunks:
                return known ? known->chunks : 0;
            // The worst first where it descends; among sound files those that nothing refers to stand out.
            case state:
                return static_cast<uint64_t>(health(f)) * 4 + (info(f).referenced ? 0 : 2) + info(f).metadata;
            default:
                return f;
        }
    };
    const auto less = [&](FileId a, FileId b) {
        return column == path ? naturalLess(info(a).path, info(b).path) : key(a) < key(b);
    };
    if (column >= 0) {
        std::stable_sort(rows_.begin(), rows_.end(), [&](FileId a, FileId b) {
            return order == Qt::AscendingOrder ? less(a, b) : less(b, a);
        });
    }
    for (size_t i = 0; i < rows_.size(); ++i)
        rowOf_[rows_[i]] = static_cast<int>(i);
    const QModelIndexList held = persistentIndexList();
    QModelIndexList moved;
    for (const QModelIndex& index : held)
        moved.append(this->index(rowOf(before[static_cast<size_t>(index.row())]), index.column()));
    changePersistentIndexList(held, moved);
    emit layoutChanged({}, QAbstractItemModel::VerticalSortHint);
}

}  // namespace shardscope::ui
