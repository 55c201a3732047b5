"""A support agent for the shop, which looks orders up and gives money back once a colleague approves."""
