#include "ui/models/object_table_model.h"

#include <algorithm>

#include "ui/models/texts.h"

namespace shardscope::ui {

namespace {
constexpr size_t kMostOfValue = 160;  // bytes of text
constexpr size_t kMostRead = 64;      // values that are kept for the table
}  // namespace

ObjectTableModel::ObjectTableModel(Session& session, QObject* parent)
    : Columns({{tr("Object")}, {tr("Type")}, {tr("Value")}, {tr("Rank")}, {tr("File")}}, parent),
      session_(session) {
    connect(&session, &Session::stateChanged, this, [this] {
        if (checkpoint_ != session_.checkpoint()) reset();
    });
    reset();
}

void ObjectTableModel::reset() {
    beginResetModel();
    if (checkpoint_ != session_.checkpoint()) read_.clear();
    checkpoint_ = session_.checkpoint();
    rows_.clear();
    const QStringList words = filter_.split(' ', Qt::SkipEmptyParts);
    const auto& objects = checkpoint_ ? checkpoint_->catalog().objects() : std::vector<ObjectInfo>();
    for (ObjectId o = 0; o < objects.size(); ++o) {
        const QString whole = toQString(objects[o].name);
        if (std::all_of(words.begin(), words.end(),
                        [&](const QString& word) { return whole.contains(word, Qt::CaseInsensitive); }))
            rows_.push_back(o);
    }
    endResetModel();
}

void ObjectTableModel::setFilter(const QString& words) {
    if (words == filter_) return;
    filter_ = words;
    reset();
}

int ObjectTableModel::rowOf(ObjectId object) const {
    const auto at = std::lower_bound(rows_.begin(), rows_.end(), object);
    return at != rows_.end() && *at == object ? static_cast<int>(at - rows_.begin()) : -1;
}

void ObjectTableModel::setValue(ObjectId object, const Value& value) {
    if (read_.size() >= kMostRead) read_.erase(read_.begin());
    read_.emplace_back(object, value);
    if (const int row = rowOf(object); row >= 0)
        emit dataChanged(index(row, typeColumn), index(row, valueColumn));
}

const Value& ObjectTableModel::valueOf(ObjectId object) const {
    for (const auto& [id, value] : read_) {
        if (id == object) return value;
    }
    return checkpoint_->catalog().objects()[object].value;
}

int ObjectTableModel::rowCount(const QModelIndex& parent) const {
    return parent.isValid() ? 0 : static_cast<int>(rows_.size());
}

QVariant ObjectTableModel::data(const QModelIndex& index, int role) const {
    if (!index.isValid() || !checkpoint_ || static_cast<size_t>(index.row()) >= rows_.size()) return {};
    const ObjectId id = object(index.row());
    const Catalog& catalog = checkpoint_->catalog();
    const ObjectInfo& info = catalog.objects()[id];
    if (role == Qt::ToolTipRole && index.column() == nameColumn) return toQString(info.name);
    if (role != Qt::DisplayRole && role != Qt::AccessibleTextRole) return {};
    const Value& known = valueOf(id);
    switch (index.column()) {
        case nameColumn:
            return toQString(info.name);
        case typeColumn:
            return known ? toQString(valueKindName(known)) : tr("not read yet");
        case valueColumn:
            return known ? toQString(valueRepr(known, kMostOfValue)) : QString();
        case rankColumn:
            return info.rank == kNone ? QStringLiteral("–") : QString::number(info.rank);
        case fileColumn:
            return info.file == kNone ? QString() : toQString(catalog.files()[info.file].path);
    }
    return {};
}

}  // namespace shardscope::ui
