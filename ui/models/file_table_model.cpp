#include "ui/models/file_table_model.h"

#include "survey/file_state.h"
#include "ui/models/texts.h"

namespace shardscope::ui {

FileTableModel::FileTableModel(Session& session, QObject* parent)
    : TextTableModel({}, parent), session_(session) {
    setContent(0, columns());
    const auto reset = [this] {
        if (checkpoint_ == session_.checkpoint()) return;
        checkpoint_ = session_.checkpoint();
        setRows(checkpoint_ ? checkpoint_->catalog().files().size() : 0);
    };
    connect(&session, &Session::stateChanged, this, reset);
    connect(&session, &Session::factsChanged, this, [this] { refresh(); });
    reset();
}

std::vector<TextColumn> FileTableModel::columns() const {
    const auto dash = QStringLiteral("–");
    return {{{tr("File")}, [this](size_t f) { return toQString(info(f).path); }},
            // The worst first where it descends; among sound files those that nothing refers to stand out.
            {{tr("State")},
             [this](size_t f) { return stateText(static_cast<FileId>(f)); },
             [this](size_t f) {
                 return static_cast<uint64_t>(health(static_cast<FileId>(f))) * 4 +
                        (info(f).referenced ? 0 : 2) + info(f).metadata;
             }},
            {{tr("Size"), true},
             [=, this](size_t f) {
                 return info(f).state == FileInfo::State::present ? sizeText(info(f).size) : dash;
             },
             [this](size_t f) { return info(f).size; }},
            known(
                tr("Used"), [](const FileFacts& facts, const FileInfo&) { return facts.used; }, true),
            known(
                tr("Dead bytes"),
                [](const FileFacts& facts, const FileInfo& info) { return facts.dead(info.size); }, true),
            {{tr("Rank"), true},
             [=, this](size_t f) { return info(f).rank == kNone ? dash : QString::number(info(f).rank); },
             [this](size_t f) { return info(f).rank; }},
            known(
                tr("Tensors"), [](const FileFacts& facts, const FileInfo&) { return facts.tensors; }, false),
            known(
                tr("Chunks"), [](const FileFacts& facts, const FileInfo&) { return facts.chunks; }, false)};
}

TextColumn FileTableModel::known(const QString& title,
                                 std::function<uint64_t(const FileFacts&, const FileInfo&)> figure,
                                 bool bytes) const {
    return {{title, true},
            [=, this](size_t f) {
                const FileFacts* of = facts(f);
                if (!of) return QStringLiteral("…");
                return bytes ? sizeText(figure(*of, info(f))) : numberText(figure(*of, info(f)));
            },
            [=, this](size_t f) { return facts(f) ? figure(*facts(f), info(f)) : 0; }};
}

const FileFacts* FileTableModel::facts(size_t file) const {
    const auto& known = session_.facts();
    return known && session_.checkpoint() == checkpoint_ && file < known->files.size() ? &known->files[file]
                                                                                       : nullptr;
}

FileTableModel::Totals FileTableModel::totals() const {
    Totals totals;
    totals.files = static_cast<size_t>(rowCount());
    for (FileId f = 0; f < totals.files; ++f) {
        const FileInfo& file = info(f);
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

Health FileTableModel::health(FileId file) const {
    return fileHealth(info(file), facts(file));
}

QString FileTableModel::stateText(FileId file) const {
    const std::string text = fileStateText(info(file), facts(file));
    return text.empty() ? QStringLiteral("…") : toQString(text);
}

QVariant FileTableModel::data(const QModelIndex& index, int role) const {
    if (index.isValid() && role == FileRole) return file(index.row());
    if (index.isValid() && role == HealthRole) return static_cast<int>(health(file(index.row())));
    return TextTableModel::data(index, role);
}

}  // namespace shardscope::ui
