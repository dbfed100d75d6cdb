// Fields for what formats take when they open a checkpoint, besides what all take (Format::options()).
#pragma once

#include <QComboBox>
#include <QLineEdit>
#include <QWidget>
#include <map>
#include <variant>
#include <vector>

#include "formats/format.h"
#include "ui/bridge/source_options.h"

namespace shardscope::ui {

class FormatOptions : public QWidget {
    Q_OBJECT
  public:
    explicit FormatOptions(QWidget* parent = nullptr);

    // The fields of these options, which formatOptions() or a format lists; without any nothing is shown.
    void offer(const std::vector<FormatOption>& options);
    void setOptions(const SourceOptions& options);
    void take(SourceOptions& options) const;  // changes SourceOptions::own alone

  signals:
    void edited();

  private:
    struct Field {
        FormatOption option;
        std::variant<QLineEdit*, QComboBox*> widget;
        QWidget* label = nullptr;
        bool shown = false;
    };
    std::vector<Field> fields_;  // one for each option of all formats
};

}  // namespace shardscope::ui
