#include "support/gui_test.h"

using namespace shardscope;
using namespace shardscope::ui;

class OverviewTest : public QObject {
    Q_OBJECT
};

SHARDSCOPE_GUI_TEST_MAIN(OverviewTest)
#include "overview_test.moc"
