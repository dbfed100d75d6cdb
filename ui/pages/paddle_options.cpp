#include "ui/pages/paddle_options.h"

#include <QComboBox>
#include <QLineEdit>
#include <algorithm>

#include "ui/pages/wizard_parts.h"

namespace shardscope::ui {

namespace {

// Rules as SourceOptions::split() reads them back.
QString asLine(const QStringList& rules) {
    QStringList words;
    for (QString rule : rules) {
        rule.replace('"', QStringLiteral("\"\"\""));
        words += rule.contains(' ') ? '"' + rule + '"' : rule;
    }
    return words.join(' ');
}

}  // namespace

PaddleOptions::PaddleOptions(QWidget* parent) : QWidget(parent) {
    auto* grid = new FormGrid;
    grid->setContentsMargins(0, 0, 0, 0);
    tpDim_ = new QLineEdit(this);
    tpDim_->setObjectName(QStringLiteral("tpDim"));
    tpDim_->setAccessibleName(tr("Dimensions that tensor-parallel ranks cut"));
    tpDim_->setPlaceholderText(tr("GLOB=DIM …, for example *.qkv_proj.weight=1 *.norm.weight=none"));
    tpDim_->setToolTip(
        tr("Along which dimension tensor-parallel ranks cut these tensors, or none where each rank holds the "
           "whole. Several rules stand apart by spaces; the first that matches a name counts."));
    masterWeights_ = new QComboBox(this);
    masterWeights_->setObjectName(QStringLiteral("masterWeights"));
    masterWeights_->setAccessibleName(tr("Master weights"));
    masterWeights_->addItem(tr("Used where no weight is stored"), QString());
    masterWeights_->addItem(tr("Used wherever there is one, cast to the weight's dtype"),
                            QStringLiteral("use"));
    masterWeights_->addItem(tr("Ignored: weights as stored, or not at all"), QStringLiteral("ignore"));
    grid->add(tr("&Cut dimensions:"), tpDim_);
    grid->add(tr("&Master weights:"), masterWeights_);
    setLayout(grid);
    setFocusProxy(tpDim_);
    connect(tpDim_, &QLineEdit::textEdited, this, &PaddleOptions::edited);
    connect(masterWeights_, &QComboBox::activated, this, &PaddleOptions::edited);
}

void PaddleOptions::setOptions(const SourceOptions& options) {
    if (SourceOptions::split(tpDim_->text()) != options.tpDim) tpDim_->setText(asLine(options.tpDim));
    masterWeights_->setCurrentIndex(std::max(0, masterWeights_->findData(options.masterWeights)));
}

void PaddleOptions::take(SourceOptions& options) const {
    options.tpDim = SourceOptions::split(tpDim_->text());
    options.masterWeights = masterWeights_->currentData().toString();
}

}  // namespace shardscope::ui
