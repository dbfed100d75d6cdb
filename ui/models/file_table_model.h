// Files of a checkpoint as rows. Columns of figures sort by the figure.
#pragma once

#include "survey/facts.h"
#include "ui/models/session.h"
#include "ui/models/text_table_model.h"

namespace shardscope::ui {

class FileTableModel : public TextTableModel {
    Q_OBJECT
  public:
    // The state stands beside the name, where a narrow view shows it.
    enum Column { path, state, size, used, dead, rank, tensors, chunks, columnCountValue };
    enum Roles { FileRole = Qt::UserRole + 1, HealthRole };
    struct Totals {
        size_t files = 0, missing = 0, unreferenced = 0;
        uint64_t size = 0, used = 0, dead = 0;
    };

    explicit FileTableModel(Session& session, QObject* parent = nullptr);

    FileId file(int row) const { return static_cast<FileId>(source(row)); }
    Totals totals() const;
    QString text(FileId file, int column) const { return textOf(static_cast<int>(file), column); }
    // What is said about a file: "ok", "missing", "not a regular file", "truncated by 12 B", "not
    // referenced", "metadata", …
    QString stateText(FileId file) const;
    // ok also for files that nothing refers to.
    Health health(FileId file) const;

    QVariant data(const QModelIndex& index, int role = Qt::DisplayRole) const override;

  private:
    std::vector<TextColumn> columns() const;
    // A column of figures that are known with the facts.
    TextColumn known(const QString& title, std::function<uint64_t(const FileFacts&, const FileInfo&)> figure,
                     bool bytes) const;
    const FileInfo& info(size_t file) const { return checkpoint_->catalog().files()[file]; }
    const FileFacts* facts(size_t file) const;

    Session& session_;
    CheckpointPtr checkpoint_;
};

}  // namespace shardscope::ui
