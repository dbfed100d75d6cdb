#include "ui/models/object_table_model.h"

#include <algorithm>

#include "ui/models/texts.h"

namespace shardscope::ui {

namespace {
constexpr size_t kMostOfValue = 160;  // bytes of text
constexpr size_t kMostRead = 64;      // values that are kept for the table
}  // namespace

ObjectTableModel::ObjectTableModel(Session& session, QObject* parent)
    : TextTableModel({}, parent), session_(session) {
    setContent(0, {{{tr("Object")}, [this](size_t o) { return toQString(info(o).name); }},
                   {{tr("Type")},
                    [this](size_t o) {
                        return valueOf(o) ? toQString(valueKindName(valueOf(o))) : tr("not read yet");
                    }},
                   {{tr("Value")},
                    [this](size_t o) {
                        return valueOf(o) ? toQString(valueRepr(valueOf(o), kMostOfValue)) : QString();
                    }},
                   {{tr("Rank")},
                    [this](size_t o) {
                        return info(o).rank == kNone ? QStringLiteral("–") : QString::number(info(o).rank);
                    }},
                   {{tr("File")}, [this](size_t o) {
                        return info(o).file == kNone
                                   ? QString()
                                   : toQString(checkpoint_->catalog().files()[info(o).file].path);
                    }}});
    connect(&session, &Session::stateChanged, this, [this] {
        if (checkpoint_ != session_.checkpoint()) reset();
    });
    reset();
}

void ObjectTableModel::reset() {
    if (checkpoint_ != session_.checkpoint()) read_.clear();
    setRows(0);
    checkpoint_ = session_.checkpoint();
    shown_.clear();
    const QStringList words = filter_.split(' ', Qt::SkipEmptyParts);
    for (ObjectId o = 0; checkpoint_ && o < checkpoint_->catalog().objects().size(); ++o) {
        const QString whole = toQString(checkpoint_->catalog().objects()[o].name);
        if (std::ranges::all_of(words,
                                [&](const QString& w) { return whole.contains(w, Qt::CaseInsensitive); }))
            shown_.push_back(o);
    }
    setRows(shown_.size());
}

void ObjectTableModel::setFilter(const QString& words) {
    if (words == filter_) return;
    filter_ = words;
    reset();
}

int ObjectTableModel::rowOf(ObjectId object) const {
    const auto at = std::ranges::lower_bound(shown_, object);
    if (at == shown_.end() || *at != object) return -1;
    return TextTableModel::rowOf(static_cast<int>(at - shown_.begin()));
}

void ObjectTableModel::setValue(ObjectId object, const Value& value) {
    if (read_.size() >= kMostRead) read_.erase(read_.begin());
    read_.emplace_back(object, value);
    refresh();
}

const Value& ObjectTableModel::valueOf(size_t at) const {
    const auto read = std::ranges::find(read_, shown_[at], &std::pair<ObjectId, Value>::first);
    return read == read_.end() ? info(at).value : read->second;
}

}  // namespace shardscope::ui
