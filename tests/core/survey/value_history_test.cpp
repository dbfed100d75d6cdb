// How values change over the steps of a run: groups, marks, and the charts of both.
#include <QTest>
#include <cmath>

#include "survey/value_charts.h"

using namespace shardscope;

namespace {

TensorValues valuesOf(const std::string& name, Role role, uint64_t elements, double norm) {
    TensorValues values{
        name, role, {elements, 0, 0, norm == 0 ? elements : 0}, {elements, 0, norm * norm, norm}};
    return values;
}

const ValueGroup* groupNamed(const ValueHistory::Step& step, const std::string& name) {
    for (const ValueGroup& group : step.groups)
        if (group.name == name) return &group;
    return nullptr;
}

}  // namespace

class ValueHistoryTest : public QObject {
    Q_OBJECT

  private slots:
    void tensorsAreGrouped_data() {
        QTest::addColumn<QString>("name");
        QTest::addColumn<int>("role");
        QTest::addColumn<QString>("module");
        QTest::addColumn<QString>("layer");
        QTest::addColumn<int>("kind");
        const auto row = [](const char* name, Role role, const char* module, const char* layer,
                            ValuesKind kind) {
            QTest::newRow(name) << name << static_cast<int>(role) << module << layer
                                << static_cast<int>(kind);
        };
        row("model.layers.5.mlp.w1.weight", Role::parameter, "model.layers.*.mlp.w1", "model.layers.5",
            ValuesKind::weight);
        row("embed.weight", Role::parameter, "embed", "embed", ValuesKind::weight);
        row("weight", Role::parameter, "weight", "weight", ValuesKind::weight);
        row("model.layers.5.mlp.experts.7.w1.weight", Role::parameter, "model.layers.*.mlp.experts.7.w1",
            "model.layers.5", ValuesKind::weight);
        // The only number is that of an expert.
        row("mlp.experts.7.w1.weight", Role::parameter, "mlp.experts.7.w1", "mlp.experts.7.w1",
            ValuesKind::weight);
        row("optim.state.layers.5.w.exp_avg", Role::optimizer, "optim.state.layers.*.w.exp_avg",
            "optim.state.layers.5.*.exp_avg", ValuesKind::moment);
        row("optim.state.layers.5.w.fp32_param", Role::optimizer, "optim.state.layers.*.w",
            "optim.state.layers.5", ValuesKind::weight);
        row("rope.table", Role::buffer, "rope.table", "rope.table", ValuesKind::other);
    }
    void tensorsAreGrouped() {
        QFETCH(QString, name);
        QFETCH(int, role);
        QFETCH(QString, module);
        QFETCH(QString, layer);
        QFETCH(int, kind);
        const std::vector tensors{valuesOf(name.toStdString(), static_cast<Role>(role), 4, 2)};
        for (const auto& [by, expected] :
             {std::pair(ValuesBy::module, module), {ValuesBy::layer, layer}, {ValuesBy::tensor, name}}) {
            ValueHistory history(by);
            history.add("step-1", tensors);
            QCOMPARE(history.steps()[0].groups.size(), size_t{1});
            QCOMPARE(QString::fromStdString(history.steps()[0].groups[0].name), expected);
            QCOMPARE(static_cast<int>(history.steps()[0].groups[0].kind), kind);
        }
    }

    void figuresOfGroups() {
        ValueHistory history;
        TensorValues first = valuesOf("layers.0.w.weight", Role::parameter, 10, 3);
        first.sums.sum = 5;
        first.counts.zero = 5;
        history.add("step-1", std::vector{first, valuesOf("layers.1.w.weight", Role::parameter, 6, 4)});
        const ValueGroup* group = groupNamed(history.steps()[0], "layers.*.w");
        QVERIFY(group);
        QCOMPARE(group->tensors, uint64_t{2});
        QCOMPARE(*group->norm(), 5.0);
        QCOMPARE(*group->rms(), 1.25);
        QCOMPARE(*group->mean(), 5.0 / 16);
        QCOMPARE(group->zeroShare(), 5.0 / 16);
        QCOMPARE(group->sums.largest, 4.0);
        QVERIFY(!ValueGroup().norm() && !ValueGroup().mean());
    }

    void whatChangesMuchIsMarked() {
        ValueHistory history;
        const auto step = [&](const char* name, double weight, double moment, uint64_t nan) {
            TensorValues embed = valuesOf("embed.weight", Role::parameter, 4, 1);
            embed.counts.nan = nan;
            history.add(name,
                        std::vector{valuesOf("layers.0.w.weight", Role::parameter, 4, weight),
                                    valuesOf("optim.exp_avg.layers.0.w", Role::optimizer, 4, moment), embed});
        };
        step("step-1", 1, 1, 0);
        step("step-2", 1.9, 9, 0);
        QCOMPARE(history.marks().size(), size_t{0});
        step("step-3", 4, 0.5, 2);
        QCOMPARE(history.marks().size(), size_t{3});
        QCOMPARE(history.marks()[0].text,
                 std::string("The norm of layers.*.w rises from 1.9 at step-2 to 4 at step-3."));
        QCOMPARE(
            history.marks()[1].text,
            std::string("The norm of optim.exp_avg.layers.*.w falls from 9 at step-2 to 0.5 at step-3."));
        QCOMPARE(history.marks()[2].text,
                 std::string("embed holds 2 NaN at step-3, none at the step before."));
        // Said once.
        step("step-4", 4, 0.5, 2);
        QCOMPARE(history.marks().size(), size_t{3});
    }

    void deadExpertsAreMarked() {
        ValueHistory history;
        const auto step = [&](const char* name, std::vector<double> norms) {
            std::vector<TensorValues> tensors;
            for (size_t e = 0; e < norms.size(); ++e)
                for (const char* part : {"w1", "w2"})
                    tensors.push_back(
                        valuesOf("layers.3.experts." + std::to_string(e) + '.' + part + ".weight",
                                 Role::parameter, 4, norms[e]));
            history.add(name, tensors);
        };
        step("step-0", {0, 0, 0});  // none was trained
        step("step-1", {1, 1, 1});
        step("step-2", {1, 0, 1});
        step("step-3", {1, 0, 0});
        std::vector<ValueMark> dead;
        for (const ValueMark& mark : history.marks())
            if (mark.what == ValueMark::What::deadExperts) dead.push_back(mark);
        QCOMPARE(dead.size(), size_t{2});
        QCOMPARE(dead[0].text,
                 std::string("1 expert of layers.3.experts dead at step-2: 1 (all weights are zero)."));
        QCOMPARE(dead[1].text,
                 std::string("1 expert of layers.3.experts dead at step-3: 2 (all weights are zero)."));

        const auto charts = ValueCharts::of(history);
        QVERIFY(charts);
        QCOMPARE(charts->charts().size(), size_t{2});
        const ValueCharts::Chart& chart = charts->charts()[0];
        QCOMPARE(chart.name, std::string("layers.*.experts.*.w1"));
        QVERIFY(chart.experts);
        QCOMPARE(chart.lines.size(), size_t{3});
        QVERIFY(charts->text(chart).find(dead[0].text) != std::string::npos);
        const ValueCharts::Drawing drawing = charts->draw(500);
        QCOMPARE(drawing.charts.size(), size_t{2});
        QCOMPARE(drawing.charts[0].y, drawing.charts[1].y);
        QCOMPARE(charts->draw(300).charts[1].x, 0.0);
        QCOMPARE(drawing.chartAt(drawing.charts[1].x + 5, 5), 1);
        QCOMPARE(drawing.chartAt(drawing.width + 5, 5), -1);
        const std::string svg = charts->svgOf(500, false);
        QCOMPARE(QByteArray::fromStdString(svg).count("<polyline"), 6);
        QVERIFY(svg.ends_with("</svg>\n"));
    }

    void oneStepIsNoCurve() {
        ValueHistory history;
        history.add("step-1", std::vector{valuesOf("w", Role::parameter, 4, 1)});
        QVERIFY(!ValueCharts::of(history));
    }
};

QTEST_APPLESS_MAIN(ValueHistoryTest)
#include "value_history_test.moc"
