// What the files of PaddleNLP's checkpoints do not say: fields for --tp-dim and --master-weights.
#pragma once

#include <QWidget>

#include "ui/bridge/source_options.h"

class QComboBox;
class QLineEdit;

namespace shardscope::ui {

class PaddleOptions : public QWidget {
    Q_OBJECT
  public:
    explicit PaddleOptions(QWidget* parent = nullptr);

    void setOptions(const SourceOptions& options);
    void take(SourceOptions& options) const;  // changes these two alone

  signals:
    void edited();

  private:
    QLineEdit* tpDim_;
    QComboBox* masterWeights_;
};

}  // namespace shardscope::ui
