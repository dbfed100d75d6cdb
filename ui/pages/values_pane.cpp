#include "ui/pages/values_pane.h"

#include <QCheckBox>
#include <QHBoxLayout>
#include <QLabel>
#include <QMenu>
#include <QPushButton>
#include <QVBoxLayout>
#include <algorithm>

#include "ui/models/text_table_model.h"
#include "ui/models/texts.h"
#include "ui/widgets/building.h"
#include "ui/widgets/exporting.h"
#include "ui/widgets/heatmap.h"
#include "ui/widgets/histogram.h"
#include "ui/widgets/labels.h"
#include "ui/widgets/task_progress.h"

namespace shardscope::ui {

namespace {
constexpr size_t kBins = 64;
}  // namespace

ValuesPane::ValuesPane(Session& session, QWidget* parent) : QWidget(parent), session_(session) {
    auto* column = layoutOf<QVBoxLayout>(this, {6, 6, 6, 6}, 6);
    auto* row = new QHBoxLayout;
    read_ = new QPushButton(tr("&Read values"), this);
    cost_ = plainLabel(this);
    progress_ = new TaskProgress(tr("Progress of reading values"), this);
    cancel_ = new QPushButton(tr("Cancel"), this);
    row->addWidget(read_);
    row->addWidget(cost_, 1);
    row->addWidget(progress_);
    row->addWidget(cancel_);
    column->addLayout(row);

    auto* panes = new QHBoxLayout;
    panes->setSpacing(10);
    statisticsNames_ = new QLabel(this);
    statisticsNames_->setAlignment(Qt::AlignTop | Qt::AlignLeft);
    panes->addWidget(statisticsNames_);
    statistics_ = plainLabel(this);
    statistics_->setTextInteractionFlags(Qt::TextSelectableByMouse | Qt::TextSelectableByKeyboard);
    statistics_->setAlignment(Qt::AlignTop | Qt::AlignRight);
    statistics_->setAccessibleName(tr("Statistics of the values"));
    panes->addWidget(statistics_);
    auto* left = new QVBoxLayout;
    auto* leftHead = new QHBoxLayout;
    auto* histogramLabel = new QLabel(tr("Histogram"), this);
    logCounts_ = new QCheckBox(tr("Log counts"), this);
    leftHead->addWidget(histogramLabel, 1);
    leftHead->addWidget(logCounts_);
    histogram_ = new Histogram(this);
    left->addLayout(leftHead);
    left->addWidget(histogram_, 1);
    auto* right = new QVBoxLayout;
    auto* rightHead = new QHBoxLayout;
    sliceLabel_ = plainLabel(this, tr("Slice"));
    logValues_ = new QCheckBox(tr("Log scale"), this);
    rightHead->addWidget(sliceLabel_, 1);
    rightHead->addWidget(logValues_);
    heatmap_ = new Heatmap(this);
    right->addLayout(rightHead);
    right->addWidget(heatmap_, 1);
    panes->addLayout(left, 1);
    panes->addLayout(right, 1);
    column->addLayout(panes, 1);

    connect(read_, &QPushButton::clicked, this, &ValuesPane::read);
    connect(cancel_, &QPushButton::clicked, this, [this] {
        statisticsTicket_.cancel();
        sliceTicket_.cancel();
    });
    connect(logCounts_, &QCheckBox::toggled, histogram_, &Histogram::setLogCounts);
    connect(logValues_, &QCheckBox::toggled, heatmap_, &Heatmap::setLogScale);
    for (PaintedView* picture : std::initializer_list<PaintedView*>{histogram_, heatmap_})
        connect(picture, &PaintedView::menuRequested, this, [this, picture](const QPoint& at) {
            popUp(this, at, [&](QMenu& menu) { fillMenu(menu, picture); });
        });
    connect(&session.tasks(), &Tasks::progressed, this, &ValuesPane::showProgress);
    connect(&session.tasks(), &Tasks::changed, this, &ValuesPane::showProgress);
    showProgress();
}

ValuesPane::~ValuesPane() {
    statisticsTicket_.drop();
    sliceTicket_.drop();
}

void ValuesPane::setTensor(TensorId tensor, const BoxView& view) {
    const bool same = tensor == tensor_ && of_ == session_.checkpoint();
    const bool sameView = same && view == view_;
    tensor_ = tensor;
    view_ = view;
    of_ = session_.checkpoint();
    if (!same) {
        statisticsTicket_.drop();
        sliceTicket_.drop();
        wanted_ = false;
        histogram_->setBins({}, 0, 0);
        heatmap_->clear();
        statistics_->clear();
        statisticsNames_->clear();
        statistics_->setAccessibleDescription({});
        sliceLabel_->setText(tr("Slice"));
        showCost();
        showProgress();
    } else if (!sameView && wanted_) {
        readSlice();
    }
}

void ValuesPane::showCost() {
    read_->setEnabled(tensor_ != kNone);
    if (tensor_ == kNone) {
        cost_->clear();
        return;
    }
    if (const QString elsewhere = session_.dataElsewhere(); !elsewhere.isEmpty()) {
        read_->setEnabled(false);
        cost_->setText(tr("The values are not here: this is %1.").arg(elsewhere));
        return;
    }
    cost_->setText(tr("Nothing has been read yet. Reads %1 (twice: statistics, then histogram).")
                       .arg(sizeText(session_.catalog().bytes(tensor_))));
}

void ValuesPane::read() {
    if (tensor_ == kNone || !session_.checkpoint()) return;
    wanted_ = true;
    statisticsTicket_.drop();
    statisticsNames_->setText(tr("Reading…"));
    statistics_->clear();
    statistics_->setAccessibleDescription({});
    cost_->clear();
    statisticsTicket_ = session_.tasks().run<TensorStatistics>(
        Work::bulk, tr("Reading values of %1").arg(toQString(session_.catalog().name(tensor_))),
        [engine = session_.enginePtr(), checkpoint = session_.checkpoint(), tensor = tensor_](
            const TaskContext& context) { return engine->statistics(checkpoint, tensor, kBins, context); },
        [this](Result<TensorStatistics> answer) {
            showProgress();
            if (answer.ok()) {
                showStatistics(*answer);
                return;
            }
            const bool cancelled = answer.error().code == ErrorCode::cancelled;
            statisticsNames_->setText(cancelled ? tr("Canceled") : tr("Not read"));
            cost_->setText(cancelled ? tr("Reading was canceled.") : errorSentence(answer.error()));
        });
    readSlice();
}

void ValuesPane::readSlice() {
    sliceTicket_.drop();
    SliceRequest request;
    request.tensor = tensor_;
    request.rowAxis = view_.down;
    request.columnAxis = view_.across;
    QStringList fixed;
    for (size_t d = 0; d < view_.index.size(); ++d) {
        request.index.push_back(std::max<int64_t>(0, view_.index[d]));
        if (static_cast<int>(d) != view_.down && static_cast<int>(d) != view_.across)
            fixed += tr("dim %1 at %2").arg(d).arg(request.index.back());
    }
    sliceLabel_->setText(tr("Reading the slice…"));
    sliceTicket_ = session_.tasks().run<SliceValues>(
        Work::metadata, tr("Reading a slice"),
        [engine = session_.enginePtr(), checkpoint = session_.checkpoint(),
         request](const TaskContext& context) { return engine->slice(checkpoint, request, context); },
        [this, request, fixed](Result<SliceValues> answer) {
            showProgress();
            if (!answer.ok()) {
                heatmap_->clear();
                sliceLabel_->setText(answer.error().code == ErrorCode::cancelled
                                         ? tr("Slice: canceled")
                                         : tr("Slice: %1").arg(errorSentence(answer.error())));
                return;
            }
            QString text =
                fixed.isEmpty() ? tr("Values") : tr("Values with %1").arg(fixed.join(QStringLiteral(", ")));
            if (answer->rowStep > 1 || answer->columnStep > 1)
                text += tr(", every %1 by %2").arg(answer->rowStep).arg(answer->columnStep);
            sliceLabel_->setText(text);
            heatmap_->setValues(std::move(answer).value(), request.rowAxis, request.columnAxis);
        });
    showProgress();
}

void ValuesPane::showStatistics(const TensorStatistics& s) {
    QStringList names, values;
    const auto add = [&](const QString& name, const QString& value) {
        names += name;
        values += value;
    };
    add(tr("Elements"), numberText(s.elements));
    if (s.finite > 0) {
        add(tr("Min"), valueText(s.min));
        add(tr("Max"), valueText(s.max));
        add(tr("Mean"), valueText(s.mean));
        add(tr("Deviation"), valueText(s.deviation));
    }
    const auto share = [&](uint64_t count) {
        return count == 0 ? QStringLiteral("0")
                          : QStringLiteral("%1 (%2)").arg(
                                numberText(count),
                                ratioText(static_cast<double>(count) / static_cast<double>(s.elements)));
    };
    add(tr("NaN"), share(s.nan));
    add(tr("Infinite"), share(s.inf));
    add(tr("Zero"), share(s.zero));
    statisticsNames_->setText(names.join('\n'));
    statistics_->setText(values.join('\n'));
    QStringList spoken;
    for (qsizetype i = 0; i < names.size(); ++i)
        spoken += QStringLiteral("%1\t%2").arg(names[i], values[i]);
    statistics_->setAccessibleDescription(spoken.join('\n'));
    histogram_->setBins(s.histogram, s.min, s.max);
    cost_->setText(countedText(s.elements, tr("1 value read"), tr("%1 values read")));
}

void ValuesPane::showProgress() {
    const bool running = statisticsTicket_.running() || sliceTicket_.running();
    progress_->setVisible(running);
    cancel_->setVisible(running);
    read_->setEnabled(tensor_ != kNone && !running);
    if (running) progress_->setStatus(statisticsTicket_.status());
}

// The twins of the painted values, for CSV and JSON.
const QAbstractItemModel* ValuesPane::rowsOf(const QWidget* picture) {
    const auto exact = [](double value) { return QString::number(value, 'g', 17); };
    const auto range = [this](size_t bin) { return histogram_->binRange(static_cast<int>(bin)); };
    const auto rowOf = [this](size_t i) { return static_cast<int64_t>(i) / heatmap_->values().columns; };
    rows_ = std::make_unique<TextTableModel>(std::vector<TextColumn>());
    if (picture == histogram_)
        rows_->setContent(
            histogram_->bins().size(),
            {{{tr("From")}, [=](size_t bin) { return exact(range(bin).first); }},
             {{tr("To")}, [=](size_t bin) { return exact(range(bin).second); }},
             {{tr("Values")}, [this](size_t bin) { return QString::number(histogram_->bins()[bin]); }}});
    else
        rows_->setContent(
            heatmap_->values().values.size(),
            {{{tr("Row")},
              [=, this](size_t i) { return QString::number(rowOf(i) * heatmap_->values().rowStep); }},
             {{tr("Column")},
              [this](size_t i) {
                  const SliceValues& of = heatmap_->values();
                  return QString::number(static_cast<int64_t>(i) % of.columns * of.columnStep);
              }},
             {{tr("Value")}, [=, this](size_t i) { return exact(heatmap_->values().values[i]); }}});
    return rows_.get();
}

void ValuesPane::fillMenu(QMenu& menu, QWidget* picture) {
    if (const QString text = statistics_->accessibleDescription(); !text.isEmpty())
        addCopyAction(menu, tr("Copy the statistics"), text);
    addExportActions(menu, {QStringLiteral("values"), picture, [this, picture] { return rowsOf(picture); }},
                     this);
}

}  // namespace shardscope::ui
