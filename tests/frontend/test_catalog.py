"""What is known of a model once its engine is ready, and what is refused before."""

import pytest

from pagewire.frontend.catalog import read_supplied_template
from pagewire.frontend.config import FrontendConfig
from pagewire.frontend.template import TemplateError
from tests.fake_engine import until
from tests.frontend.running import StartServer


async def test_a_template_name_that_the_model_lacks_is_told_in_the_log_and_to_clients(
    start_server: StartServer, caplog: pytest.LogCaptureFixture
) -> None:
    server = await start_server(chat_template="name:nope")
    told = "there is no chat template named 'nope'; known: default, alpaca"
    await until(lambda: told in caplog.text)
    status, answer = await server.chat()
    assert status == 400
    assert told in answer["error"]["message"]
    assert (await server.complete())[0] == 200


@pytest.mark.parametrize("value", ["name:", "name:no such name", "name:../x"])
def test_what_can_be_no_template_name_is_refused_at_start(value: str) -> None:
    with pytest.raises(TemplateError, match="looks like a file path"):
        read_supplied_template(FrontendConfig(chat_template=value))
