#include "support/gui_test.h"

using namespace shardscope;
using namespace shardscope::ui;

class CompareTest : public QObject {
    Q_OBJECT
};

SHARDSCOPE_GUI_TEST_MAIN(CompareTest)
#include "compare_test.moc"
