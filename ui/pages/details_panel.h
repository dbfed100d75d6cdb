// What is selected, in words: every line selectable, with the copies that people paste elsewhere.
#pragma once

#include <QWidget>

#include "ui/models/session.h"

class QFormLayout;
class QLabel;
class QPlainTextEdit;
class QScrollArea;
class QToolButton;

namespace shardscope::ui {

class DetailsPanel : public QWidget {
    Q_OBJECT
  public:
    explicit DetailsPanel(Session& session, QWidget* parent = nullptr);

    // The shown lines, "label: value"; for tests and accessibility.
    QStringList lines() const;

  private:
    void rebuild();
    void line(const QString& label, const QString& value);
    void section(const QString& title);
    void showTensor(TensorId tensor);
    void showChunk(ChunkId chunk);
    void showModule(const QString& name);
    void showObject(ObjectId object);
    void showFile(FileId file);
    void showRanks(const std::vector<uint32_t>& ranks);
    void showCheckpoint();

    Session& session_;
    QLabel* title_;
    QToolButton* copy_;
    QScrollArea* area_;
    QWidget* body_ = nullptr;
    QFormLayout* form_;
    QStringList lines_;
};

}  // namespace shardscope::ui
