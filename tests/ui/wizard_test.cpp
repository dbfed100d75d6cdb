#include "support/gui_test.h"

using namespace shardscope;
using namespace shardscope::ui;

class WizardTest : public QObject {
    Q_OBJECT
};

SHARDSCOPE_GUI_TEST_MAIN(WizardTest)
#include "wizard_test.moc"
