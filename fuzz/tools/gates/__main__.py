"""python -m fuzz.tools.gates"""

from .command import app

app()
