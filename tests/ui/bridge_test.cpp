#include "support/gui_test.h"

using namespace shardscope;
using namespace shardscope::ui;

class BridgeTest : public QObject {
    Q_OBJECT
};

SHARDSCOPE_GUI_TEST_MAIN(BridgeTest)
#include "bridge_test.moc"
