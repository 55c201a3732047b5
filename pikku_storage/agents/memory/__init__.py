"""What an agent's author needs around history and working memory: `AgentMemory`, and the functions it is made of."""
