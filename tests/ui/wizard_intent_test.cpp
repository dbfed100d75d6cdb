// The wizard from what a person wants: how many clicks the usual jobs take, and what is chosen for them.
#include <QCheckBox>
#include <QJsonDocument>
#include <QJsonObject>
#include <QSignalSpy>
#include <QTableWidget>
#include <QToolButton>

#include "cli/state_file.h"
#include "plan/request_text.h"
#include "support/window_fixture.h"
#include "support/wizard_fixture.h"
#include "ui/pages/wizard_pages.h"

using namespace shardscope;
using namespace shardscope::ui;
using shardscope::test::numbers;
using shardscope::test::State;

namespace {

// Llama as torchtitan calls it, as its trainer saves it.
State torchtitan() {
    State state;
    for (const char* layer : {"model.layers.0.", "model.layers.1."}) {
        const std::string p = layer;
        for (const char* matrix : {"attention.wq", "attention.wk", "attention.wv", "attention.wo",
                                   "feed_forward.w1", "feed_forward.w2", "feed_forward.w3"})
            state[p + matrix + ".weight"] = numbers({8, 8}, 0);
        state[p + "attention_norm.weight"] = numbers({8}, 0);
        state[p + "ffn_norm.weight"] = numbers({8}, 0);
    }
    state["model.tok_embeddings.weight"] = numbers({12, 8}, 0);
    state["model.output.weight"] = numbers({12, 8}, 0);
    state["model.norm.weight"] = numbers({8}, 0);
    state["optimizer.state.norm.weight.exp_avg"] = numbers({8}, 0);
    return state;
}

constexpr const char* kModel =
    R"({"model_type": "llama", "num_attention_heads": 2, "num_key_value_heads": 2, "num_hidden_layers": 2,
        "vocab_size": 12})";

}  // namespace

class WizardIntentTest : public QObject, WindowFixture, WizardFixture {
    Q_OBJECT

    int clicks_ = 0;
    void clickOn(QWidget* widget) {
        QVERIFY(widget && widget->isVisible() && widget->isEnabled());
        ++clicks_;
        QTest::mouseClick(widget, Qt::LeftButton);
    }

    // The first click: on Convert in the toolbar of a window that has the checkpoint open.
    ConvertWizard* wizardOf(const QString& path) {
        open(path, {1366, 768});
        if (!window_) return nullptr;
        clicks_ = 0;
        for (QToolButton* button : window_->findChildren<QToolButton*>()) {
            if (button->isVisible() && button->text() == "Convert") clickOn(button);
        }
        auto* wizard = window_->findChild<ConvertWizard*>();
        if (wizard) wizard->resize(1000, 680);
        return wizard;
    }

    QString source(const State& state, const char* config = nullptr) {
        const QString directory = fresh() + "/run/step-1";
        test::writeState(directory.toStdString() + "/model.safetensors", state);
        if (config) test::writeFile(directory.toStdString() + "/../config.json", config);
        return directory;
    }

    void shootBoth(ConvertWizard& wizard, const QString& name) {
        picture(wizard, name);
        applyTheme(ThemeChoice::dark);
        picture(wizard, name + "-dark");
        applyTheme(ThemeChoice::light);
    }

  private slots:
    void init() { start(); }
    void cleanup() { end(); }

    void inferenceTakesThreeClicks() {
        ConvertWizard* wizard = wizardOf(source(torchtitan(), kModel));
        QVERIFY(wizard);
        auto* card = named<QPushButton>(*wizard, "intentInference");
        QTRY_VERIFY_WITH_TIMEOUT(
            card->accessibleDescription().contains("'llama-hf-from-torchtitan' fits the names"), kPatience);
        shootBoth(*wizard, QStringLiteral("intent"));
        clickOn(named<QPushButton>(*wizard, "intentInference"));
        QTRY_COMPARE_WITH_TIMEOUT(wizard->currentPage(), int(plan), kPatience);
        const ConversionSpec spec = wizard->spec();
        QCOMPARE(spec.format, QStringLiteral("safetensors"));
        QCOMPARE(spec.map, QStringLiteral("llama-hf-from-torchtitan"));
        QVERIFY(spec.weightsOnly);
        QCOMPARE(spec.rename, QStringList{"^model[.]="});
        QVERIFY2(spec.assets.endsWith("/run"), qPrintable(spec.assets));
        auto* begin = named<QPushButton>(*wizard, "start");
        QTRY_VERIFY_WITH_TIMEOUT(begin->isEnabled(), kPatience);
        QCOMPARE(named<QLabel>(*wizard, "planVerdict")->text(), QStringLiteral("✓ This can run."));
        shootBoth(*wizard, QStringLiteral("intent-plan"));
        QSignalSpy started(wizard, &ConvertWizard::started);
        clickOn(begin);
        QTRY_COMPARE_WITH_TIMEOUT(started.size(), 1, kPatience);
        QCOMPARE(clicks_, 3);
    }

    void otherRanksTakeThreeClicks() {
        const QString path = copyCheckpoint(sampleCheckpoint());
        ConvertWizard* wizard = wizardOf(path);
        QVERIFY(wizard);
        auto* mesh = named<QLineEdit>(*wizard, "intentMesh");
        QCOMPARE(mesh->text(), QStringLiteral("fsdp=2,tp=2"));
        shootBoth(*wizard, QStringLiteral("intent-sharded"));
        type(mesh, QStringLiteral("fsdp=2,tp=4"));
        clickOn(named<QPushButton>(*wizard, "intentRanks"));
        QCOMPARE(wizard->currentPage(), int(plan));
        QCOMPARE(wizard->spec().mesh, QStringLiteral("fsdp=2,tp=4"));
        QVERIFY(!wizard->spec().shard.isEmpty());
        auto* begin = named<QPushButton>(*wizard, "start");
        QTRY_VERIFY_WITH_TIMEOUT(begin->isEnabled(), kPatience);
        // All that the source cuts is cut, optimizer state included.
        QVERIFY(!named<QLabel>(*wizard, "planSummary")->text().contains("stored whole"));
        shootBoth(*wizard, QStringLiteral("intent-ranks"));
        QSignalSpy started(wizard, &ConvertWizard::started);
        clickOn(begin);
        QTRY_COMPARE_WITH_TIMEOUT(started.size(), 1, kPatience);
        QCOMPARE(clicks_, 3);
    }

    void otherIntentsOpenTheirPages() {
        ConvertWizard* wizard = wizardOf(sampleCheckpoint());
        QVERIFY(wizard);
        const ConversionSpec before = wizard->spec();
        for (const auto& [card, page] : {std::pair{"intentFramework", target}, {"intentSome", names}}) {
            clickOn(named<QPushButton>(*wizard, card));
            QCOMPARE(wizard->currentPage(), int(page));
            QVERIFY(wizard->spec() == before);
            wizard->showPage(intent);
        }
    }

    // All by keys: Tab goes from card to card, Enter and mnemonics choose.
    void keys() {
        ConvertWizard* wizard = wizardOf(sampleCheckpoint());
        QVERIFY(wizard);
        wizard->activateWindow();
        QVERIFY(QTest::qWaitForWindowActive(wizard));
        auto* first = named<QPushButton>(*wizard, "intentInference");
        QTRY_VERIFY(first->hasFocus());
        QTest::keyClick(first, Qt::Key_Tab);
        QTRY_VERIFY(named<QPushButton>(*wizard, "intentRanks")->hasFocus());
        auto* framework = named<QPushButton>(*wizard, "intentFramework");
        framework->setFocus();
        QTest::keyClick(framework, Qt::Key_Return);
        QTRY_COMPARE(wizard->currentPage(), int(target));
        wizard->showPage(intent);
        QTest::keyClick(wizard, Qt::Key_T, Qt::AltModifier);
        QTRY_COMPARE(wizard->currentPage(), int(names));
        wizard->showPage(intent);
        auto* mesh = named<QLineEdit>(*wizard, "intentMesh");
        type(mesh, QStringLiteral("nonsense"));
        QTest::keyClick(mesh, Qt::Key_Return);
        QCOMPARE(wizard->currentPage(), int(intent));
        type(mesh, QStringLiteral("fsdp=1,tp=2"));
        QTest::keyClick(mesh, Qt::Key_Return);
        QTRY_COMPARE(wizard->currentPage(), int(plan));
        QCOMPARE(wizard->spec().mesh, QStringLiteral("fsdp=1,tp=2"));
    }

    // What is not known of the model is asked for on the page of the plan.
    void configurationIsAskedFor() {
        ConvertWizard* wizard = wizardOf(source(torchtitan()));
        QVERIFY(wizard);
        clickOn(named<QPushButton>(*wizard, "intentInference"));
        QTRY_COMPARE_WITH_TIMEOUT(wizard->currentPage(), int(plan), kPatience);
        auto* verdict = named<QLabel>(*wizard, "planVerdict");
        QTRY_VERIFY2_WITH_TIMEOUT(verdict->text().contains("needs a number for heads"),
                                  qPrintable(verdict->text()), kPatience);
        auto* model = named<QLineEdit>(*wizard, "planModel");
        QVERIFY(model->isVisible());
        shootBoth(*wizard, QStringLiteral("intent-asks"));
        const QString directory = fresh();
        test::writeFile(directory.toStdString() + "/config.json", kModel);
        type(model, directory);
        QTRY_COMPARE_WITH_TIMEOUT(verdict->text(), QStringLiteral("✓ This can run."), kPatience);
    }

    // Names that no recipe fits are carried as they are, and the plan says what comes of that.
    void unloadableIsSaidBeforeTheStart() {
        ConvertWizard* wizard = wizardOf(sampleCheckpoint());
        QVERIFY(wizard);
        clickOn(named<QPushButton>(*wizard, "intentInference"));
        QTRY_COMPARE_WITH_TIMEOUT(wizard->currentPage(), int(plan), kPatience);
        auto* verdict = named<QLabel>(*wizard, "planVerdict");
        QTRY_VERIFY2_WITH_TIMEOUT(
            verdict->text().startsWith(QStringLiteral("▲ This can run, but transformers will not load")),
            qPrintable(verdict->text()), kPatience);
        QVERIFY(verdict->text().contains("config.json"));
        QVERIFY(status(*wizard).contains("transformers will not load it"));
        shootBoth(*wizard, QStringLiteral("intent-unloadable"));
    }

    void severalRecipesAreTheUsersChoice() {
        ConvertWizard* wizard = wizardOf(genuineCheckpoint(QStringLiteral("megatron/m0.16.1-moe-ep2")));
        QVERIFY(wizard);
        clickOn(named<QPushButton>(*wizard, "intentInference"));
        QTRY_COMPARE_WITH_TIMEOUT(wizard->currentPage(), int(names), kPatience);
        const QString fitting = named<QLabel>(*wizard, "fittingRecipes")->text();
        for (const char* name : {"mixtral-hf-from-megatron", "glm4.5-hf-from-megatron"})
            QVERIFY2(fitting.contains(name), qPrintable(fitting));
        QVERIFY2(!fitting.contains("peft"), qPrintable(fitting));
    }
};

SHARDSCOPE_GUI_TEST_MAIN(WizardIntentTest)
#include "wizard_intent_test.moc"
