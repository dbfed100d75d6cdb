#include "ui/widgets/run_timeline.h"

#include <QDateTime>
#include <QLocale>
#include <QMouseEvent>
#include <QPainter>
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "ui/models/texts.h"
#include "ui/widgets/painting.h"
#include "ui/widgets/theme.h"

namespace shardscope::ui {

namespace {

constexpr double kHead = 15;          // pixels across
constexpr double kWidestBar = 9;      // a bar leaves half of the room to the next one free
constexpr double kLeastHatched = 4;   // narrower bars are dashed instead
constexpr double kBarStrength = 0.6;  // of a bar's color; its mark stands out
constexpr double kReach = 10;         // from which the pointer finds a mark
constexpr double kTimeTick = 110;
constexpr double kLongGap = 2;  // times the usual one
constexpr double kEnds = 12;    // at both ends of the axis
constexpr int64_t kMinute = 60, kHour = 3600, kDay = 86'400;

// A text on a plate, moved into `within`; where it is now.
QRectF plateOf(const QFontMetricsF& metrics, const QString& text, double x, double top,
               const QRectF& within) {
    QRectF plate(0, top, metrics.horizontalAdvance(text) + 12, metrics.height() + 2);
    plate.moveLeft(std::clamp(x - plate.width() / 2, within.left(),
                              std::max(within.left(), within.right() - plate.width())));
    return plate;
}

void paintPlate(QPainter& painter, const QRectF& plate, const QString& text, const QColor& color) {
    painter.save();
    painter.setRenderHint(QPainter::Antialiasing);
    painter.setPen(Qt::NoPen);
    painter.setBrush(color);
    painter.drawRoundedRect(plate, 3, 3);
    painter.restore();
    painter.setPen(textOn(color));
    painter.drawText(plate, Qt::AlignCenter | Qt::TextSingleLine, text);
}

QColor markColor(const RunMark& mark) {
    return mark.verdict ? verdictColor(*mark.verdict) : faintTextColor();
}

}  // namespace

RunTimeline::RunTimeline(QWidget* parent)
    : PaintedView(tr("Timeline of the run"), {700, 190}, {320, 150}, parent) {
    setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Preferred);
    describeCurrent();
}

void RunTimeline::setMarks(std::vector<RunMark> marks, std::function<QString(int)> text) {
    marks_ = std::move(marks);
    text_ = std::move(text);
    current_ = std::min(current_, static_cast<int>(marks_.size()) - 1);
    std::erase_if(selected_, [&](int mark) { return static_cast<size_t>(mark) >= marks_.size(); });
    layOut();
    describeCurrent();
}

void RunTimeline::setCurrent(int mark) {
    if (mark == current_ || mark >= static_cast<int>(marks_.size())) return;
    current_ = mark;
    describeCurrent();
    update();
}

void RunTimeline::setSelected(std::vector<int> marks) {
    selected_ = std::move(marks);
    update();
}

// ------------------------------------------------------------------ layout

double RunTimeline::laneHeight() const {
    return fontMetrics().height() + 6;
}

double RunTimeline::positionOf(const RunMark& mark, size_t index) const {
    switch (axis_) {
        case Axis::time:
            return static_cast<double>(mark.savedMs) / 1000;
        case Axis::step:
            return static_cast<double>(mark.step);
        case Axis::order:
            break;
    }
    return static_cast<double>(marks_.size() - index);
}

void RunTimeline::layOut() {
    // Times tell nothing where one is unknown, or all are the same (a run that was copied).
    const auto all = [&](auto known) { return std::ranges::all_of(marks_, known); };
    const auto sameTime = [&](const RunMark& mark) { return mark.savedMs == marks_[0].savedMs; };
    const bool timed =
        all([](const RunMark& mark) { return mark.savedMs != 0; }) && (marks_.size() < 2 || !all(sameTime));
    axis_ = timed                                                     ? Axis::time
            : all([](const RunMark& mark) { return mark.step >= 0; }) ? Axis::step
                                                                      : Axis::order;
    most_ = 0;
    ranksChange_ = false;
    for (const RunMark& mark : marks_) {
        most_ = std::max(most_, mark.bytes);
        ranksChange_ |= mark.ranksBefore != 0;
    }
    const double left = fontMetrics().horizontalAdvance(QStringLiteral("1,000.0 MiB")) + 10;
    const double top = 4 + laneHeight() * (ranksChange_ ? 2 : 1) + kHead;
    const double bottom = laneHeight() * (axis_ == Axis::time ? 2 : 1) + 4;
    plot_ = QRectF(rect()).adjusted(left, top, -kEnds, -bottom);
    std::vector<double> at(marks_.size());
    for (size_t i = 0; i < marks_.size(); ++i)
        at[i] = positionOf(marks_[i], i);
    order_.resize(marks_.size());
    std::iota(order_.rbegin(), order_.rend(), 0);  // oldest first
    std::ranges::stable_sort(order_, {}, [&](int mark) { return at[static_cast<size_t>(mark)]; });
    x_.assign(marks_.size(), 0);
    if (marks_.empty()) return update();
    from_ = at[static_cast<size_t>(order_.front())];
    to_ = at[static_cast<size_t>(order_.back())];
    const QRectF area = plot().adjusted(kEnds, 0, -kEnds, 0);
    for (size_t i = 0; i < marks_.size(); ++i) {
        const double share = to_ > from_ ? (at[i] - from_) / (to_ - from_) : 0.5;
        x_[i] = area.left() + share * area.width();
    }
    barWidth_ =
        std::clamp(std::floor(area.width() / static_cast<double>(marks_.size()) / 2), 1.0, kWidestBar);
    update();
}

double RunTimeline::yOf(uint64_t bytes) const {
    const QRectF area = plot();
    return area.bottom() -
           area.height() * static_cast<double>(bytes) / static_cast<double>(std::max<uint64_t>(1, most_));
}

QRectF RunTimeline::barOf(int mark) const {
    const double bottom = plot().bottom();
    const double top = std::min(bottom - 1, yOf(marks_[static_cast<size_t>(mark)].bytes));
    return {std::round(xOf(mark) - barWidth_ / 2), std::round(top), barWidth_, bottom - std::round(top)};
}

QRectF RunTimeline::headOf(int mark) const {
    return {std::round(xOf(mark)) - kHead / 2, barOf(mark).top() - kHead + 1, kHead, kHead};
}

std::vector<int> RunTimeline::headed() const {
    std::vector<bool> taken(static_cast<size_t>(std::max(1, width())) + 1, false);
    std::vector<int> shown;
    const auto place = [&](int mark) {
        const QRectF head = headOf(mark);
        const auto first = static_cast<size_t>(std::clamp(head.left(), 0.0, double(width())));
        const auto last = static_cast<size_t>(std::clamp(head.right(), 0.0, double(width())));
        if (std::any_of(taken.begin() + static_cast<std::ptrdiff_t>(first),
                        taken.begin() + static_cast<std::ptrdiff_t>(last) + 1, [](bool on) { return on; }))
            return;
        std::fill(taken.begin() + static_cast<std::ptrdiff_t>(first),
                  taken.begin() + static_cast<std::ptrdiff_t>(last) + 1, true);
        shown.push_back(mark);
    };
    // What matters most comes first.
    const auto rank = [&](int index) {
        const RunMark& mark = marks_[static_cast<size_t>(index)];
        if (index == current_) return 0;
        if (mark.newestWhole) return 1;
        if (mark.verdict == Verdict::unsafe) return 2;
        if (mark.ranks < mark.ranksBefore) return 3;
        if (mark.verdict == Verdict::care) return 4;
        return mark.verdict ? 6 : 5;
    };
    std::array<std::vector<int>, 7> byRank;
    for (const int mark : order_)
        byRank[static_cast<size_t>(rank(mark))].push_back(mark);
    for (const auto& marks : byRank) {
        for (auto mark = marks.rbegin(); mark != marks.rend(); ++mark)
            place(*mark);
    }
    return shown;
}

// ------------------------------------------------------------------ painting

void RunTimeline::paintSizes(QPainter& painter) const {
    const QRectF area = plot();
    const double step = bytesAxisStep(static_cast<double>(most_));
    for (double at = 0; at <= static_cast<double>(most_); at += step) {
        const double y = std::round(yOf(static_cast<uint64_t>(at))) + 0.5;
        painter.setPen(QPen(gridColor(), 1));
        painter.drawLine(QPointF(area.left(), y), QPointF(area.right(), y));
        // Labels that would touch the one below them are left out.
        if (at > 0 && area.bottom() - y < fontMetrics().height()) continue;
        painter.setPen(faintTextColor());
        painter.drawText(QRectF(0, y - 10, area.left() - 6, 20), Qt::AlignRight | Qt::AlignVCenter,
                         at == 0 ? QStringLiteral("0") : sizeText(static_cast<uint64_t>(at)));
    }
}

// Hours and days of this place's clock, with the date where it is another than that of the label before.
void RunTimeline::paintTimes(QPainter& painter) const {
    const QRectF area = plot();
    const QFontMetricsF metrics(painter.font());
    const double top = area.bottom() + laneHeight() + 4;
    const double width = area.width() - 2 * kEnds;
    static constexpr std::array<int64_t, 16> steps{
        kMinute,    5 * kMinute, 10 * kMinute, 30 * kMinute, kHour,     2 * kHour, 3 * kHour, 6 * kHour,
        12 * kHour, kDay,        2 * kDay,     7 * kDay,     14 * kDay, 30 * kDay, 91 * kDay, 365 * kDay};
    const double wanted = (to_ - from_) * kTimeTick / std::max(1.0, width);
    const auto fits =
        std::ranges::find_if(steps, [&](int64_t s) { return static_cast<double>(s) >= wanted; });
    const int64_t step = fits == steps.end() ? steps.back() : *fits;
    // Ticks are whole ones of the local clock.
    const auto local = [](double seconds) {
        return QDateTime::fromSecsSinceEpoch(static_cast<qint64>(seconds)).offsetFromUtc();
    };
    const int64_t offset = local(from_);
    QDate shown;
    double free = 0;
    const auto label = [&](double seconds, double x) {
        const QDateTime time = QDateTime::fromMSecsSinceEpoch(static_cast<qint64>(seconds * 1000));
        const QString day = QLocale().toString(time.date(), QStringLiteral("MMM d"));
        QString text = day;
        if (step < kDay || to_ == from_) {
            text = QLocale().toString(time.time(), QStringLiteral("HH:mm"));
            if (time.date() != shown) text = day + QStringLiteral(", ") + text;
        }
        const double advance = metrics.horizontalAdvance(text);
        const double left = std::min(x - advance / 2, this->width() - advance - 2);
        if (left < free) return;
        painter.drawText(QPointF(left, top + metrics.ascent()), text);
        free = left + advance + 10;
        shown = time.date();
    };
    painter.setPen(faintTextColor());
    if (to_ <= from_) return label(from_, area.center().x());
    const auto first =
        static_cast<int64_t>(std::ceil((from_ + static_cast<double>(offset)) / static_cast<double>(step))) *
        step;
    size_t ticks = 0;
    for (int64_t at = first - offset; static_cast<double>(at) <= to_; at += step, ++ticks) {
        const double share = (static_cast<double>(at) - from_) / (to_ - from_);
        const double x = area.left() + kEnds + share * width;
        painter.drawLine(QPointF(x, top - 4), QPointF(x, top - 1));
        label(static_cast<double>(at), x);
    }
    if (ticks == 0) label(from_, area.left() + kEnds);
}

void RunTimeline::paintNumbers(QPainter& painter) const {
    const QRectF area = plot();
    const QFontMetricsF metrics(painter.font());
    painter.setPen(faintTextColor());
    double free = 0;
    for (const int mark : order_) {
        const RunMark& at = marks_[static_cast<size_t>(mark)];
        const QString text = at.step >= 0 ? tr("step %1").arg(at.step) : at.name;
        const double advance = metrics.horizontalAdvance(text);
        const double left = xOf(mark) - advance / 2;
        if (left < free || left + advance > width()) continue;
        painter.drawText(QPointF(left, area.bottom() + 4 + metrics.ascent()), text);
        free = left + advance + 24;
    }
}

// From one save to the next; a long one stands out.
void RunTimeline::paintGaps(QPainter& painter) const {
    const QFontMetricsF metrics(painter.font());
    std::vector<double> gaps;
    for (size_t i = 1; i < order_.size(); ++i)
        gaps.push_back(static_cast<double>(marks_[static_cast<size_t>(order_[i])].savedMs -
                                           marks_[static_cast<size_t>(order_[i - 1])].savedMs) /
                       1000);
    if (gaps.empty()) return;
    std::vector<double> sorted = gaps;
    std::ranges::nth_element(sorted, sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2));
    const double usual = sorted[sorted.size() / 2];
    const double y = std::round(plot().bottom() + laneHeight() / 2 + 1) + 0.5;
    for (size_t i = 0; i < gaps.size(); ++i) {
        const double left = xOf(order_[i]) + 3, right = xOf(order_[i + 1]) - 3;
        if (right - left < 4) continue;
        const bool isLong = gaps[i] > kLongGap * usual;
        const QColor color = isLong ? palette().color(QPalette::WindowText) : faintTextColor();
        const QString text = timeText(gaps[i]);
        const double advance = metrics.horizontalAdvance(text);
        painter.setPen(QPen(color, isLong ? 2 : 1));
        if (right - left < advance + 14) {
            painter.drawLine(QPointF(left, y), QPointF(right, y));
            continue;
        }
        const double middle = (left + right) / 2;
        painter.drawLine(QPointF(left, y), QPointF(middle - advance / 2 - 4, y));
        painter.drawLine(QPointF(middle + advance / 2 + 4, y), QPointF(right, y));
        painter.drawText(QRectF(middle - advance / 2 - 2, y - 12, advance + 4, 24), Qt::AlignCenter, text);
    }
}

void RunTimeline::paintBar(QPainter& painter, int index) const {
    const RunMark& mark = marks_[static_cast<size_t>(index)];
    const QRectF bar = barOf(index);
    const QColor color = markColor(mark);
    const bool whole = mark.verdict && *mark.verdict != Verdict::unsafe;
    if (whole) {
        painter.fillRect(bar, softened(color, kBarStrength));
    } else if (bar.width() < kLeastHatched) {
        // On a strip of its own, lest it drowns among its neighbors.
        const QRectF strip(bar.center().x() - 2, bar.top(), 4, bar.height());
        painter.fillRect(strip, surfaceColor());
        painter.setPen(QPen(color, 2, mark.verdict ? Qt::DashLine : Qt::DotLine, Qt::FlatCap));
        painter.drawLine(QPointF(strip.center().x(), strip.bottom()),
                         QPointF(strip.center().x(), strip.top()));
    } else {
        painter.setPen(QPen(color, 1));
        painter.setBrush(mark.verdict ? QBrush(color, Qt::BDiagPattern) : QBrush(Qt::NoBrush));
        painter.drawRect(bar.adjusted(0.5, 0.5, -0.5, -0.5));
    }
}

void RunTimeline::paintHead(QPainter& painter, int index) const {
    const RunMark& mark = marks_[static_cast<size_t>(index)];
    const QRectF head = headOf(index);
    const QColor color = markColor(mark);
    painter.setRenderHint(QPainter::Antialiasing);
    painter.setPen(QPen(mark.verdict ? surfaceColor() : color, 1.5));
    painter.setBrush(mark.verdict ? color : surfaceColor());
    painter.drawEllipse(head.adjusted(0.5, 0.5, -0.5, -0.5));
    painter.setRenderHint(QPainter::Antialiasing, false);
    if (mark.verdict) {
        painter.setPen(textOn(color));
        painter.drawText(head.adjusted(-2, -2, 2, 2), Qt::AlignCenter | Qt::TextDontClip,
                         verdictText(*mark.verdict).left(1));
    } else if (mark.saving) {
        for (const double x : {-4, -1, 2})
            painter.fillRect(
                QRectF(std::round(head.center().x()) + x, std::round(head.center().y()) - 1, 2, 2),
                palette().color(QPalette::WindowText));
    }
}

void RunTimeline::paintRankChanges(QPainter& painter) const {
    const QFontMetricsF metrics(painter.font());
    const QRectF area = plot();
    const double top = 2 + laneHeight();
    // From the right: of two that are close, the later one is the one that holds.
    double right = width() - 2;
    for (auto index = order_.rbegin(); index != order_.rend(); ++index) {
        const RunMark& mark = marks_[static_cast<size_t>(*index)];
        if (mark.ranksBefore == 0) continue;
        const double x = std::round(xOf(*index)) + 0.5;
        painter.setPen(QPen(palette().color(QPalette::WindowText), 1, Qt::DashLine));
        painter.drawLine(QPointF(x, top + metrics.height()), QPointF(x, area.bottom()));
        const QString text =
            mark.ranks == mark.ranksBefore
                ? tr("other mesh")
                : tr("%1 → %2 ranks").arg(numberText(mark.ranksBefore), numberText(mark.ranks));
        const QRectF plate = plateOf(metrics, text, x, top, QRectF(rect()).adjusted(2, 0, -2, 0));
        if (plate.right() > right) continue;
        right = plate.left() - 6;
        const bool lost = mark.ranks < mark.ranksBefore;
        paintPlate(painter, plate, text, lost ? verdictColor(Verdict::care) : panelColor());
    }
}

void RunTimeline::paintNewest(QPainter& painter) const {
    const auto newest = std::ranges::find_if(marks_, &RunMark::newestWhole);
    if (newest == marks_.end()) return;
    const int index = static_cast<int>(newest - marks_.begin());
    const QFontMetricsF metrics(painter.font());
    const QString text = tr("newest whole step");
    const QRectF plate = plateOf(metrics, text, xOf(index), 2, QRectF(rect()).adjusted(2, 0, -2, 0));
    const double x = std::round(xOf(index));
    painter.setPen(QPen(accentColor(), 2));
    painter.drawLine(QPointF(x, plate.bottom()), QPointF(x, headOf(index).top()));
    paintPlate(painter, plate, text, accentColor());
}

QString RunTimeline::emptyText() const {
    return marks_.empty() ? tr("No steps yet.") : QString();
}

QString RunTimeline::textAt(const QPointF& position) const {
    const int mark = markAt(position.x(), kReach);
    return mark >= 0 ? text_(mark) : QString();
}

void RunTimeline::paint(QPainter& painter, const QRect&) {
    paintSizes(painter);
    if (axis_ == Axis::time) {
        paintGaps(painter);
        paintTimes(painter);
    } else {
        paintNumbers(painter);
    }
    // The worst on top, where several share pixels.
    for (const int pass : {0, 1, 2}) {
        for (const int mark : order_) {
            const auto& verdict = marks_[static_cast<size_t>(mark)].verdict;
            const int level = verdict == Verdict::unsafe ? 2 : verdict == Verdict::care ? 1 : 0;
            if (level == pass) paintBar(painter, mark);
        }
    }
    for (const int mark : selected_)
        painter.fillRect(QRectF(xOf(mark) - 6, plot().bottom() + 1, 12, 3), accentColor());
    paintNewest(painter);
    paintRankChanges(painter);
    if (current_ >= 0)
        paintSelectionFrame(painter, barOf(current_).united(headOf(current_)).adjusted(-3, -3, 3, 2));
    for (const int mark : headed())
        paintHead(painter, mark);
}

// ------------------------------------------------------------------ input

int RunTimeline::markAt(double x, double within) const {
    int found = -1;
    for (const int mark : order_) {
        const double off = std::abs(xOf(mark) - x);
        if (off > within) continue;
        within = off;
        found = mark;
    }
    return found;
}

void RunTimeline::choose(int mark) {
    if (mark < 0 || mark >= static_cast<int>(marks_.size())) return;
    setCurrent(mark);
    emit chosen(mark);
}

// For those who do not see it: the run in a line, then the current step.
void RunTimeline::describeCurrent() {
    QString text = countedText(marks_.size(), tr("1 step"), tr("%1 steps"));
    const auto newest = std::ranges::find_if(marks_, &RunMark::newestWhole);
    if (newest != marks_.end()) text += tr("; the newest whole step is %1").arg(newest->name);
    if (current_ >= 0) text += '\n' + text_(current_);
    describe(text);
}

void RunTimeline::mousePressEvent(QMouseEvent* event) {
    if (event->button() != Qt::LeftButton) return QWidget::mousePressEvent(event);
    choose(markAt(event->position().x(), width()));
}

void RunTimeline::mouseDoubleClickEvent(QMouseEvent* event) {
    const int mark = event->button() == Qt::LeftButton ? markAt(event->position().x(), kReach) : -1;
    if (mark >= 0) emit activated(mark);
}

bool RunTimeline::pressKey(int key) {
    if (key == Qt::Key_Return || key == Qt::Key_Enter) {
        if (current_ >= 0) emit activated(current_);
        return true;
    }
    const auto at = std::ranges::find(order_, current_);
    const int place = at == order_.end() ? -1 : static_cast<int>(at - order_.begin());
    const auto next = itemByKey(key, place, static_cast<int>(order_.size()));
    if (next) choose(order_[static_cast<size_t>(*next)]);
    return next.has_value();
}

void RunTimeline::changeEvent(QEvent* event) {
    QWidget::changeEvent(event);
    if (event->type() == QEvent::FontChange) layOut();
}

void RunTimeline::resizeEvent(QResizeEvent* event) {
    QWidget::resizeEvent(event);
    layOut();
}
}  // namespace shardscope::ui
