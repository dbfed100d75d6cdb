// Messages of one window, newest at the end. What a message says may come from a checkpoint: plain text only.
#pragma once

#include <QAbstractTableModel>
#include <QDateTime>
#include <QWidget>
#include <deque>

#include "model/catalog.h"

class QTreeView;
class QLabel;

namespace shardscope::ui {

class LogModel : public Columns<QAbstractTableModel> {
    Q_OBJECT
  public:
    enum Column { time, level, message, columnCountValue };
    static constexpr int kMostLines = 10'000;  // older ones go

    explicit LogModel(QObject* parent = nullptr);

    void append(Severity severity, const QString& text);
    void clear();

    int rowCount(const QModelIndex& parent = {}) const override;
    QVariant data(const QModelIndex& index, int role) const override;

  private:
    struct Line {
        QDateTime time;
        Severity severity;
        QString text;
    };
    std::deque<Line> lines_;
};

class LogPanel : public QWidget {
    Q_OBJECT
  public:
    explicit LogPanel(QWidget* parent = nullptr);

    void append(Severity severity, const QString& text);
    void clear() { model_.clear(); }
    void copyAll() const;
    const LogModel& model() const { return model_; }

  private:
    LogModel model_;
    QTreeView* view_;
    QLabel* empty_;
};

}  // namespace shardscope::ui
